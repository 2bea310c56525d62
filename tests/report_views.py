"""Views with made-up numbers and hostile names, for tests of pages and for the browser."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedsir.report.audit_page import AuditedClient, AuditView, ClientView, ConfusionCell, SuspiciousSample
from fedsir.report.pictures import picture_of_array

HOSTILE = (
    "<script>alert('x')</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style></svg><script>alert(2)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "Klinik\u202egpj.Süd & <b>",
    "line\nbreak\x1b[31m",
)


def audit_view(n_clients: int = 10, n_classes: int = 10, *, names: tuple[str, ...] = ()) -> AuditView:
    """Return an audit in which every third client is noisy and the last is not assessed."""
    random = np.random.default_rng(0)
    labels = tuple(names[i] if i < len(names) else f"class {i}" for i in range(n_classes))
    clients = []
    for i in range(n_clients):
        name = names[i] if i < len(names) else f"clinic {i}"
        page = f"clients/{i}/report.html"
        if i == n_clients - 1:
            clients.append(AuditedClient(name, 12, 1, "not assessed", "only 1 usable class; two are needed", page=page))
            continue
        is_noisy = i % 3 == 1
        rate = float(random.uniform(0.15, 0.6)) if is_noisy else float(random.uniform(0.0, 0.02))
        error = 0.04 if is_noisy else 0.008
        samples = int(random.integers(200, 5000))
        clients.append(
            AuditedClient(
                name,
                samples,
                n_classes,
                "noisy" if is_noisy else "clean",
                "",
                rate,
                max(0.0, rate - 2 * error),
                min(1.0, rate + 2 * error),
                0.999 if is_noisy else 0.01,
                round(rate * samples) if is_noisy else None,
                page,
            )
        )
    confusion = [
        ConfusionCell(labels[i], labels[j], None if (i + j) % 4 == 0 else int(random.integers(5, 400)))
        for i in range(min(n_classes, 60))
        for j in range(min(n_classes, 60))
        if i != j and random.random() < 0.4
    ]
    n_noisy = sum(client.verdict == "noisy" for client in clients)
    return AuditView(
        headline=f"{n_noisy} of {n_clients} clients look noisy; about 4,100 of 31,000 labels are suspect",
        data=names[0] if names else "chest-x-rays",
        features="resnet18, 512 numbers per image",
        class_names=labels,
        clients=tuple(clients),
        confusion=tuple(confusion),
        settings={"min_cell": 5, "seed": 0, **{name: name for name in names}},
        notes=names[:2],
        commands=(("Look through the suspicious images:", "fedsir audit review out"), *((n, n) for n in names[:2])),
        created="2026-01-01",
    )


def client_view(n_samples: int = 60, *, names: tuple[str, ...] = (), has_pictures: bool = True) -> ClientView:
    """Return the page of a noisy client with pictures of noise."""
    random = np.random.default_rng(1)
    whole = audit_view(names=names)
    labels = whole.class_names
    samples = []
    for i in range(n_samples):
        pixels = random.integers(0, 256, (1 if i % 2 else 3, 8, 8), dtype=np.uint8)
        samples.append(
            SuspiciousSample(
                i + 1,
                names[i] if i < len(names) else f"s{i}",
                labels[i % len(labels)],
                labels[(i + 1) % len(labels)],
                i / 200,
                0.9,
                names[i] if i < len(names) else f"a/b/{i}.png",
                picture_of_array(pixels) if has_pictures else None,
            )
        )
    client = next(client for client in whole.clients if client.verdict == "noisy")
    return ClientView(
        headline=f"{n_samples} of {client.samples:,} labels look wrong",
        data=whole.data,
        client=client,
        class_names=labels,
        samples=tuple(samples),
        n_suspicious=n_samples,
        confusion=tuple(replace(cell, count=cell.count or 3) for cell in whole.confusion),
        why_no_pictures="There are features, and no images.",
        commands=whole.commands,
        notes=whole.notes,
    )


def hostile_run(folder: Path) -> Path:
    """Run a round of FedSIR on images of clients and classes with hostile names; return the run's folder."""
    import fedsir

    names = [name for name in HOSTILE if name.isprintable()]  # the readers refuse what cannot be shown
    random = np.random.default_rng(3)
    n = 240
    labels = np.arange(n) % 3
    data = folder / "<b>data & 'x'.npz"
    np.savez(
        data,
        images=(random.integers(0, 60, (n, 8, 8)) + 60 * labels[:, None, None]).astype(np.uint8),
        labels=labels,
        clients=np.array(names[:4])[np.arange(n) // 3 % 4],
        class_names=np.array([names[1], names[0], "plain"]),
    )
    settings = {
        "data.noise": "symmetric",
        "data.noise_rate": 0.6,
        "data.noisy_clients": 2,
        "method.identify.epochs": 1,
        "method.relabel.every": 1,
        "method.epochs": 1,
    }
    out = folder / "run <i>&"
    fedsir.run(dataset=data, method="fedsir", rounds=2, settings=settings, out=out)
    return out
