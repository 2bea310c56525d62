"""One measurement of `bench_flower_memory` in a process of its own, so that its peak of memory is its own.

`python -m benchmarks.flower_child ENGINE N` runs two rounds with N clients and prints JSON. The peak is that of the
process that is the server; clients train in other processes.
"""

from __future__ import annotations

import json
import sys

from benchmarks.bench_round import one_of
from benchmarks.federation import opened, random_federation
from benchmarks.measure import peak, seconds_of
from fedsir.runs.provenance import cores

PER_CLIENT = 4


def main() -> None:
    engine, n = sys.argv[1], int(sys.argv[2])
    data = random_federation(n, PER_CLIENT)
    workers = max(2, cores())  # with one, the local engine's clients train in this process
    with opened(data, method="fedavg", model="resnet18", workers=workers, engine_name=engine) as federation:
        one_round = one_of(federation)
        one_round()
        seconds = seconds_of(one_round)
    print(json.dumps({"peak_mb": peak() / 1e6, "seconds": seconds}))


if __name__ == "__main__":  # also what keeps worker processes from starting the measurement again
    main()
