"""Where samples come from, who owns them, and which labels are wrong.

`source` reads a data set, `partition` deals its samples to clients, `cover` says which clients are noisy,
`noise` makes their labels wrong, `dealing` does all of this as the settings say, and `federation` has the result
(`FederatedData`) with what only an evaluator sees (`GroundTruth`). Everything but `client` works without torch.
"""
