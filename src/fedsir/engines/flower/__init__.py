"""Flower as an engine: the same methods on a network that others maintain. Needs the extra `fedsir[flower]`."""

from fedsir.engines.flower.offline import go_offline

go_offline()  # here, so that it comes before any import of Flower, which reads some of it only once
