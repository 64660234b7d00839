# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
"""A double of vLLM's interface for load formats, as published with version 0.28. Not vLLM's code."""

__version__ = "0.28.0"
