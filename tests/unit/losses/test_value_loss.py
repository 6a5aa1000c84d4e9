from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.losses.value_loss import value_loss

numbers = st.floats(-2, 2)


@given(
    rows=st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=8), clip=st.sampled_from([0.0, 0.2, 1.0])
)
def test_it_is_the_larger_error_of_the_value_and_of_the_clipped_value(
    rows: list[tuple[float, float, float]], clip: float
):
    """Andrychowicz et al. 2020, arXiv:2006.05990, choice C13.

    Max of both squared errors; half of it, so that the gradient is the error.
    """
    values, returns, old = torch.tensor(rows, dtype=torch.float64).T
    loss, is_clipped = value_loss(values, returns, old, clip)
    for row, got, flag in zip(rows, loss.tolist(), is_clipped.tolist(), strict=True):
        value, target, before = row
        clipped = before + min(max(value - before, -clip), clip) if clip else value
        plain, other = 0.5 * (value - target) ** 2, 0.5 * (clipped - target) ** 2
        assert abs(got - max(plain, other)) < 1e-12
        assert flag == (other > plain) or abs(other - plain) < 1e-12


def test_a_value_that_left_its_range_towards_the_return_gets_no_gradient_and_one_away_from_it_does():
    values = torch.tensor([0.5, -0.5], requires_grad=True)
    loss, _ = value_loss(values, torch.tensor([1.0, 1.0]), torch.zeros(2), 0.2)
    loss.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.0, -1.5]
