"""An answer counts where it is marked, and what a sentence denies, doubts or asks is none."""

import cases_beside as near
import cases_marks as rows
import pytest
from agentrl_math import verify
from agentrl_math.neighbours import WORD_FONTS


@pytest.mark.parametrize("response", rows.UNSTATED)
def test_a_denied_or_doubted_answer_and_a_question_score_zero(response):
    for policy in ({}, {"fallback": "number"}):
        verdict = verify(response, "5", **policy)
        assert (verdict.reward, verdict.valid) == (0.0, True)


@pytest.mark.parametrize("response", rows.UNMARKED)
def test_prose_is_not_read(response):
    verdict = verify(response, "5")
    assert (verdict.reward, verdict.valid) == (0.0, True)


@pytest.mark.parametrize(("response", "gold"), rows.MARKED)
def test_a_marked_answer_is_read_and_the_last_mark_wins(response, gold):
    assert verify(response, gold).status == "correct"


@pytest.mark.parametrize(("response", "gold", "status"), rows.NUMBERS)
def test_a_task_can_ask_for_the_last_number(response, gold, status):
    assert verify(response, gold, fallback="number").status == status


@pytest.mark.parametrize(("response", "gold"), rows.LAST_NUMBERS)
def test_prose_is_read_only_where_a_task_asks_for_the_last_number(response, gold):
    assert verify(response, gold).reward == 0.0
    assert verify(response, gold, fallback="number").status == "correct"


@pytest.mark.parametrize(("response", "gold"), rows.PROSE)
def test_prose_without_an_answer_scores_zero(response, gold):
    for policy in ({}, {"fallback": "number"}):
        assert verify(response, gold, **policy).reward == 0.0


@pytest.mark.parametrize(("response", "gold", "box", "status"), rows.BOX_POLICIES)
def test_a_denied_box_is_none_whichever_box_counts(response, gold, box, status):
    assert verify(response, gold, box=box).status == status


@pytest.mark.parametrize(("response", "gold", "policy", "reward"), near.POLICIES)
def test_a_policy_counts_no_box_that_is_taken_back_and_no_number_to_be_computed(response, gold, policy, reward):
    assert verify(response, gold, **policy).reward == reward


@pytest.mark.parametrize("response", rows.CHANGED + rows.TAKEN_BACK + near.CHANGED + near.TAKEN_BACK)
def test_a_mark_that_its_formula_changes_or_its_text_takes_back_is_paid_nothing(response):
    verdict = verify(response, "5")
    assert (verdict.reward, verdict.valid) == (0.0, True)


@pytest.mark.parametrize("response", rows.SPOKEN_OF_ELSE + near.SPOKEN_OF_ELSE)
def test_a_denial_of_something_else_does_not_affect_the_mark(response):
    assert verify(response, "5").status == "correct"


@pytest.mark.parametrize("response", rows.ALONE + near.ALONE)
def test_a_box_that_nothing_changes_is_read(response):
    assert verify(response, "5").status == "correct"


@pytest.mark.parametrize(("response", "gold", "reward"), rows.BELONGING + near.BELONGING)
def test_a_unit_beside_a_box_belongs_to_it(response, gold, reward):
    assert verify(response, gold).reward == reward


@pytest.mark.parametrize(("response", "gold"), rows.CHANGED_NUMBERS)
def test_a_number_that_is_an_operand_or_a_label_is_no_answer(response, gold):
    assert verify(response, gold, fallback="number").reward == 0.0


@pytest.mark.parametrize("font", sorted(WORD_FONTS))
def test_a_word_in_any_font_is_no_value_and_replaces_no_mark(font):
    assert verify(f"\\boxed{{5}}\n\nAnswer: \\{font}{{unique}}", "5").status == "correct"


def test_there_are_hundreds_of_sentences():
    assert len(rows.UNSTATED) > 150
    assert len(rows.UNMARKED) + len(rows.MARKED) + len(rows.NUMBERS) > 250
