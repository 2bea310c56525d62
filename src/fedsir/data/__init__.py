"""Where samples come from, who owns them, and which labels are wrong.

`source` reads a data set, `partition` deals its samples to clients, `cover` says which clients are noisy,
`noise` makes their labels wrong, and `federation` puts it together as what clients see (`FederatedData`) and
what only an evaluator sees (`GroundTruth`). Everything but `client` works without torch.
"""
