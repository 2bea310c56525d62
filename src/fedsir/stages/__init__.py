"""The paper: three stages as pure functions, no input or output, no hidden randomness.

spectrum   Eq. (1): the class-wise feature spectrum that both spectral stages read
identify   Stage I: class directions, class similarity, off-diagonal statistics
split      Stage I on the server: clean and noisy clients
relabel    Stage II: residual subspaces, references, the two scores, the rules
train      Stage III: logit adjustment, distillation, distance-aware aggregation
"""
