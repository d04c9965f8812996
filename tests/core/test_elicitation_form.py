"""Elicitation form: what is said of an answer that does not fit."""

from pegboard.core.elicitation_form import fits_form, form_of, form_problems


def test_an_answer_that_does_not_fit_is_explained_value_by_value() -> None:
    form, _ = form_of({"type": "integer"})
    assert form_problems(form, {"action": "accept", "content": {"answer": "x"}}).startswith("$.answer: ")
    assert form_problems(form, {"action": "accept"}).startswith("$.answer: ")
    assert fits_form(form, {"action": "accept", "content": {"answer": 1}})
    assert fits_form(form, {"action": "decline"})
