import torch

# The tensors of the tests are tiny, and several test processes share the cores.
torch.set_num_threads(1)
