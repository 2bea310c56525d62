"""A site's folder: what it says of itself, its key, and how it is started."""

from __future__ import annotations

import os
import shlex
import socket
from pathlib import Path
from typing import Any

from fedsir.data.naming import readable_name
from fedsir.deployment.site_data import SiteConfig, load_site_data
from fedsir.engines.flower.offline import QUIET
from fedsir.errors import ConfigError, DataError


def write_site(
    folder: Path,
    client_id: str,
    data: Path,
    *,
    image_size: int = 0,
    public: Path | None = None,
    superlink: str,
    ca: Path | None,
    port: int = 0,
) -> dict[str, Any]:
    """Check a site's data and write its folder; return what was found, and the command that starts the site.

    `public` is its copy of the images that everybody has. `ca` is the certificate that the server's is checked with;
    None starts the site without encryption. `port` is where Flower's processes of this site meet on this machine; 0
    takes one that is free now.
    """
    readable_name("--client-id", client_id)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: --out must name a folder.")
    if public is not None and not public.exists():
        raise DataError(f"{public} is not there: --public must name an npz file or a folder")
    site = SiteConfig(client_id, str(data.resolve()), image_size, "" if public is None else str(public.resolve()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = load_site_data(site, folder)
        site.write(folder)
        key = write_key(folder / "key")
        command = start_command(folder, superlink, ca, key, port or _free_port())
        script = folder / "start.sh"
        exports = "".join(f"export {name}={value}\n" for name, value in QUIET.items())
        script.write_text(
            f"#!/bin/sh\n# Starts this site; it connects to the server and opens no port to the network.\n{exports}"
            f'exec {shlex.join(command)} "$@"\n',
            encoding="utf-8",
        )
        script.chmod(0o755)
    except OSError as problem:
        raise DataError(f"{folder} cannot be written: {problem.strerror}") from None
    told = found.describe()
    about = {key: told[key] for key in ("n_train", "n_held_out", "class_names", "channels", "image_size", "version")}
    return {
        "client_id": client_id,
        "folder": str(folder.resolve()),
        **about,
        "public_key": str((folder / "key.pub").resolve()),
        "start": str(script.resolve()),
    }


def start_command(folder: Path, superlink: str, ca: Path | None, key: Path, port: int) -> list[str]:
    """Return the command that connects a site's folder to a SuperLink."""
    secure = ["--insecure"] if ca is None else ["--root-certificates", str(ca.resolve())]
    keyed = [] if ca is None else ["--auth-supernode-private-key", str(key.resolve())]
    return [
        "flower-supernode",
        *secure,
        *keyed,
        "--superlink",
        superlink,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--node-config",
        f"site='{folder.resolve()}'",
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_key(path: Path) -> Path:
    """Write a key pair of the kind Flower wants, unless there is one; the private half is for its owner alone."""
    if path.exists():
        return path
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(private)
    path.with_name(f"{path.name}.pub").write_bytes(public + b"\n")
    return path
