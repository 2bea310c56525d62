"""FedSIR's Stages I and II on features that you have already: any embedding, no training, no torch.

`identify` says which clients' labels look wrong, and how many of them; `relabel` which labels, and what they should be.
Each client is looked at on its own, and only what FedSIR's clients send is put together: sums of features; or how alike
their classes are, then class directions and residual subspaces.
"""

from fedsir.embeddings.federation import Federation
from fedsir.embeddings.results import Identification, Relabelled
from fedsir.embeddings.stage_one import Split, identify, identify_in
from fedsir.embeddings.stage_two import Rule, relabel

__all__ = ["Federation", "Identification", "Relabelled", "Rule", "Split", "identify", "identify_in", "relabel"]
