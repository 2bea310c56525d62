"""Rules of the source that keep it running on any device: tensors are moved, and made, where one can see it.

A fake device finds what a test runs. These rules also hold for code that no test runs there yet, such as a new method.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import fedsir

Rule = Callable[[ast.Call], bool]
ROOT = Path(fedsir.__file__).parent
ON_CLIENTS = ("data", "evaluate", "methods", "models", "stages")  # and engines/client_host.py
MOVES = {"cpu", "cuda", "numpy"}
FACTORIES = {
    *("arange", "as_tensor", "empty", "empty_strided", "eye", "from_file", "from_numpy", "frombuffer", "full"),
    *("linspace", "logspace", "normal", "ones", "rand", "randint", "randn", "randperm", "scalar_tensor", "tensor"),
    "zeros",
}

# Where a tensor may leave its device, and why: a function, or a whole module that only ever sees the CPU.
MOVES_WITH_A_REASON = {
    "engines/federation.py:EngineFederation.predict": "the answer came by the wire: it is on the CPU",
    "engines/wire.py:_flatten": "what travels is bytes in the host's memory",
    "engines/wire.py:decode": "the JSON of a payload that is on the CPU",
    "evaluate/accuracy.py:predict": "all predicted classes at once, for NumPy to score",
    "runs/checkpoint.py": "a checkpoint is read from a file, on the CPU",
    "simulation/evaluation.py": "client states came by the wire: they are on the CPU",
    "methods/fedcorr.py:FedCorr.replace_labels": "corrected labels stay with the client, in its state, on the CPU",
    "methods/fedcorr.py:FedCorr.visit": "losses stay with the client, in its state, on the CPU",
    "methods/fedelc.py:FedELC.train_noisy": "labels that were learnt stay with the client, in its state, on the CPU",
    "methods/local_training.py:mean_loss_by_class": "a few sums in float64, which an accelerator may not have",
    "methods/local_training.py:as_arrays": "they came by the wire: they are on the CPU",
    "methods/local_training.py:class_features_of": "spectra need float64, which an accelerator may not have",
    "methods/local_training.py:relabel_client": "corrected labels stay with the client, in its state, on the CPU",
    "methods/local_training.py:sure_labels": "they choose among a client's data, which are on the CPU",
    "models/weights.py:weights_sha256": "a hash reads bytes in the host's memory",
    "methods/fedcorr_math.py:noise_level": "losses out of the client's state are on the CPU, for scikit-learn",
    "methods/lid.py:local_intrinsic_dimension": "distances need float64, which an accelerator may not have",
}

# Where a tensor may be made without saying on which device, and why.
FACTORIES_WITH_A_REASON = {
    "methods/local_training.py:relabel_client": "corrected labels stay with the client, in its state, on the CPU",
    "models/build.py:_check_contract": "a model is built and tried on the CPU",
    "models/compact_resnet18.py:full_weights": "the server exports a model, on the CPU",
    "models/position_major.py:_along": "constants, made on the CPU in float64 for `_transforms`, which moves them",
    "models/position_major.py:_sources": "constants, moved at the end",
}


def calls(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Yield every call with the dotted name of the function around it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from calls(node, f"{inside}.{node.name}".lstrip("."))
        else:
            if isinstance(node, ast.Call):
                yield inside, node
            yield from calls(node, inside)


def is_move(call: ast.Call) -> bool:
    """Whether a call takes a tensor off its device: x.cpu(), x.cuda(), x.numpy(), x.to("…")."""
    if not isinstance(call.func, ast.Attribute):
        return False
    target = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    to_a_name = any(isinstance(value, ast.Constant) and isinstance(value.value, str) for value in target)
    return call.func.attr in MOVES or (call.func.attr == "to" and to_a_name)


def is_homeless_factory(call: ast.Call) -> bool:
    """Whether a call is torch.zeros(…), torch.tensor(…) or the like without device=."""
    func = call.func
    if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "torch"):
        return False
    return func.attr in FACTORIES and not any(keyword.arg == "device" for keyword in call.keywords)


def without_a_reason(rule: Rule, paths: Iterable[Path], reasons: Mapping[str, str]) -> tuple[list[str], set[str]]:
    """Return where a call breaks a rule, and the reasons that excuse none."""
    broken, unused = [], set(reasons)
    for path in paths:
        module = path.relative_to(ROOT).as_posix()
        for inside, call in calls(ast.parse(path.read_text())):
            if rule(call):
                excuses = {module, f"{module}:{inside}"} & reasons.keys()
                unused -= excuses
                broken += [] if excuses else [f"{module}:{inside}, line {call.lineno}"]
    return broken, unused


def on_clients() -> Iterator[Path]:
    for package in ON_CLIENTS:
        yield from (ROOT / package).rglob("*.py")
    yield ROOT / "engines" / "client_host.py"


def test_tensors_leave_their_device_for_a_reason_only() -> None:
    broken, unused = without_a_reason(is_move, ROOT.rglob("*.py"), MOVES_WITH_A_REASON)
    assert broken == [], "keep tensors on client.device; if one must leave it, give the reason in MOVES_WITH_A_REASON"
    assert unused == set(), "remove reasons that nothing needs any more"


def test_client_code_says_where_it_makes_tensors() -> None:
    broken, unused = without_a_reason(is_homeless_factory, on_clients(), FACTORIES_WITH_A_REASON)
    assert broken == [], 'pass device=client.device (or x.new_zeros, zeros_like; "cpu" where that is meant)'
    assert unused == set(), "remove reasons that nothing needs any more"


@pytest.mark.parametrize(
    ("code", "is_bad"),
    [
        ("x.detach().cpu()", True),
        ("x.numpy()", True),
        ("x.cuda()", True),
        ('x.to("cpu")', True),
        ('x.to(device="cuda", dtype=torch.float32)', True),
        ("x.to(client.device)", False),
        ("x.to(torch.float64)", False),
        ("module.to(device=device)", False),
        ("np.zeros(3)", False),
    ],
)
def test_the_first_rule(code: str, is_bad: bool) -> None:
    assert any(is_move(call) for _, call in calls(ast.parse(code))) == is_bad


@pytest.mark.parametrize(
    ("code", "is_bad"),
    [
        ("def f():\n    return torch.zeros(3) + 1", True),
        ("torch.tensor([1.0], dtype=torch.float32)", True),
        ("torch.randperm(n, generator=g)", True),
        ("torch.zeros(3, device=x.device)", False),
        ('torch.zeros(3, device="cpu")', False),
        ("torch.zeros_like(x)", False),
        ("x.new_zeros(3)", False),
        ("np.zeros(3)", False),
    ],
)
def test_the_second_rule(code: str, is_bad: bool) -> None:
    assert any(is_homeless_factory(call) for _, call in calls(ast.parse(code))) == is_bad
