"""Three sites with data of their own, encryption and registered keys, on this machine: FedSIR names the bad one.

Everything is a process of its own, as it would be on four machines: Flower's SuperLink, three SuperNodes, and for each
message a process at the site. Run it with the name of a folder; docs/deploy.md explains each command it prints.

    python examples/three_sites.py three-sites
"""

from __future__ import annotations

import csv
import datetime
import ipaddress
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sklearn.datasets import load_digits

from fedsir.deployment.server import RESULT
from fedsir.deployment.site_data import load_site_data, read_site
from fedsir.engines.flower.offline import environment

CLASSES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SITES = ("ashford", "brampton", "carlisle")
BAD, NOISE_RATE = "brampton", 0.7
ROUNDS = 2


class Machine:
    """Processes on this machine, started in a folder, and ended with it."""

    def __init__(self, folder: Path, *, quiet: bool = False) -> None:
        self.folder, self.quiet = folder, quiet
        folder.mkdir(parents=True, exist_ok=True)
        binaries = Path(sys.executable).parent  # Flower's commands are installed beside Python
        self.environment = environment(folder / "flower") | {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
        self.port = free_port()
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.started)):
            self.stop(name)

    def run(self, *words: str) -> str:
        """Run a command to its end; return what it says."""
        self.say(f"$ {shlex.join(words)}")
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on; its output goes to NAME.log."""
        self.say(f"$ {shlex.join(words)} > {name}.log &")
        log = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen(
            words, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )
        self.started[name] = process
        return process

    def stop(self, name: str, *, how: signal.Signals = signal.SIGTERM) -> None:
        """End a command and what it has started."""
        process = self.started.pop(name)
        for sent in (how, signal.SIGKILL):
            try:
                os.killpg(process.pid, sent)
                process.wait(timeout=20)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        process.wait()

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, flush=True)

    # ------------------------------------------------------------------ a federation

    def start_superlink(self) -> None:
        """Start the server's side of Flower, with encryption and a list of keys it lets in."""
        self.start(
            "superlink",
            *("flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), "--database", "superlink.db"),
            *("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"),
            "--enable-supernode-auth",
        )
        wait_for_port(self.port, self.started["superlink"])

    def write_flower_config(self) -> None:
        """Tell the flwr command where the SuperLink is."""
        home = self.folder / "flower"
        home.mkdir(exist_ok=True)
        text = f'[superlink]\ndefault = "sites"\n[superlink.sites]\naddress = "127.0.0.1:{self.port}"\n'
        (home / "config.toml").write_text(f'{text}root-certificates = "{self.folder / "ca.crt"}"\n')

    def make_site(self, name: str, data: str) -> dict[str, Any]:
        """Check a site's data, and write its config and key."""
        told = self.run(
            *("fedsir", "flower", "site", "--data", data, "--client-id", name, "--out", f"site-{name}"),
            *("--superlink", f"127.0.0.1:{self.port}", "--ca", "ca.crt", "--json"),
        )
        found: dict[str, Any] = json.loads(told)
        return found

    def register(self, name: str) -> None:
        """Let a site's key in."""
        self.run("flwr", "supernode", "register", f"site-{name}/key.pub", "sites")

    def start_site(self, name: str) -> None:
        self.start(f"site-{name}", f"site-{name}/start.sh")

    def run_app(self, app: str = "app", **over: Any) -> dict[str, Any]:
        """Run the app over the sites to its end; return its result."""
        config = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in over.items())
        told = self.run("flwr", "run", app, "sites", "--stream", *(["--run-config", config] if config else []))
        for line in told.splitlines():
            if line.startswith("fedsir: "):
                self.say(line)
        results = [line.partition(RESULT)[2] for line in told.splitlines() if RESULT in line]
        if not results:
            raise RuntimeError(f"the app says nothing:\n{told}")
        found: dict[str, Any] = json.loads(results[-1])
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], within: float = 60) -> None:
    ends = time.monotonic() + within
    while time.monotonic() < ends:
        if process.poll() is not None:
            raise RuntimeError("the SuperLink has ended; see superlink.log")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the SuperLink does not start; see superlink.log")


def write_certificates(folder: Path) -> None:
    """Write ca.crt, server.pem and server.key for 127.0.0.1; a real server has a certificate for its own name."""
    now, year = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=365)
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def certificate(subject: str, key: Any, *extensions: tuple[Any, bool]) -> bytes:
        builder = x509.CertificateBuilder(name("Three Sites CA"), name(subject), key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + year)
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        signed = builder.sign(ca_key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    key_use = dict.fromkeys(
        (
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
        ),
        False,
    )
    may_sign = x509.KeyUsage(**key_use | {"key_cert_sign": True, "crl_sign": True, "digital_signature": True})
    of_ca = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    (folder / "ca.crt").write_bytes(
        certificate(
            *("Three Sites CA", ca_key),
            *((x509.BasicConstraints(ca=True, path_length=0), True), (may_sign, True), (of_ca, False)),
        )
    )
    here = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    by_ca = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    (folder / "server.pem").write_bytes(certificate("127.0.0.1", server_key, (here, False), (by_ca, False)))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.key").write_bytes(server_key.private_bytes(*form))
    (folder / "server.key").chmod(0o600)


def write_data(folder: Path, n: int = 1797) -> None:
    """Deal digits to three sites, each with an npz of its own; the labels of the bad one go wrong."""
    digits, random = load_digits(), np.random.default_rng(0)
    rows = random.permutation(len(digits.target))[:n]
    for site, mine in zip(SITES, np.array_split(rows, 3), strict=True):
        true = digits.target[mine]
        given = true.copy()
        if site == BAD:
            is_wrong = random.random(len(mine)) < NOISE_RATE
            given[is_wrong] = (true[is_wrong] + random.integers(1, 10, is_wrong.sum())) % 10
        images = np.rint(digits.images[mine] * 255 / 16).astype(np.uint8)
        features = digits.data[mine].astype(np.float32)  # an audit needs no network for images as small as these
        np.savez(folder / f"{site}.npz", images=images, labels=np.array(CLASSES)[given], features=features)
        np.savez(folder / f"{site}-truth.npz", true=np.array(CLASSES)[true])


def repaired(folder: Path) -> dict[str, float]:
    """Return the share of wrong labels among those that the bad site trains on, before and after."""
    with np.load(folder / f"{BAD}.npz") as given, np.load(folder / f"{BAD}-truth.npz") as truth:
        given_labels, true = given["labels"], truth["true"]
    file = next((folder / f"site-{BAD}").glob("labels-*.csv"))
    suggested = {int(row["sample"]): row["suggested"] for row in csv.DictReader(file.open())}
    after = given_labels.copy()
    for sample, label in suggested.items():
        after[sample] = label
    trained_on = np.array(load_site_data(read_site(folder / f"site-{BAD}" / "site.toml")).names, int)
    return {
        "changed": len(suggested),
        "wrong_before": float((given_labels != true)[trained_on].mean()),
        "wrong_after": float((after != true)[trained_on].mean()),
    }


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing stays behind
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "three-sites").resolve()
    with Machine(folder) as machine:
        write_certificates(folder)
        write_data(folder)
        machine.start_superlink()
        machine.write_flower_config()
        for site in SITES:
            machine.make_site(site, f"{site}.npz")
            machine.register(site)
            machine.start_site(site)
        machine.run("fedsir", "flower", "new", "app", "--method", "fedsir", "--rounds", str(ROUNDS))
        print(machine.run("fedsir", "flower", "check", "app", "sites"))
        given = ("--features", "given", "--min-sites", "3")
        print(machine.run("fedsir", "flower", "audit", "app", "sites", "-o", "audit", *given))
        print(machine.run("fedsir", "audit", "apply", f"site-{BAD}/audit", "--accept", "score<0.2"))
        result = machine.run_app(min_sites=3)
        print(f"noisy: {', '.join(result['noisy_clients'])}; clean: {', '.join(result['clean_clients'])}")
        shares = ", ".join(f"{site} {share:.1%}" for site, share in result["accuracy_by_site"].items())
        print(f"accuracy on what each site held out: {shares}")
        labels = repaired(folder)
        print(
            f"{BAD} has {labels['changed']} repaired labels on its own disk: of those it trains on "
            f"{labels['wrong_before']:.1%} were wrong, now {labels['wrong_after']:.1%}"
        )


if __name__ == "__main__":
    main()
