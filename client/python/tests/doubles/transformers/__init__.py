# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A double of transformers 5.17: how it opens files and takes tensors from them."""

import os

__version__ = os.environ.get("DOUBLE_TRANSFORMERS", "5.17.0")
