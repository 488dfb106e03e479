"""One thread for all of these tests: their tensors are small, and others run beside them."""

import torch

torch.set_num_threads(1)
