"""Drawn quantisation of bytes."""

from __future__ import annotations

import hypothesis.strategies as st

from aot.testing import Quant
from tests.op._differential import scales

QUANTS = st.builds(Quant, scales(), st.one_of(st.sampled_from([-128, 127, 0]), st.integers(-128, 127)))
