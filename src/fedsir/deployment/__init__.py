"""Methods on real sites: what runs at a site, what runs at the server, and how they come to agree. Needs Flower."""

import fedsir.engines.flower  # noqa: F401 - takes Flower offline before a module here imports it
