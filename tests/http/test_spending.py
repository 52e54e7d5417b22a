"""Money of requests, by numbers worked out by hand."""

from __future__ import annotations

import asyncio

import pytest

from evoseek.http.spending import Prices, spend, spending


def usage(read: int, written: int, **details: object) -> dict[str, object]:
    return {"usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written, **details}}


def test_a_reply_costs_what_it_says_that_it_used() -> None:
    """1,000 tokens at 2 and 100 at 10 a million: .002 + .001. With 600 of them cached at .5: .0008 + .0003 + .001."""
    assert Prices(2.0, 10.0).of(usage(1_000, 100)) == pytest.approx(0.003)
    cached = usage(1_000, 100, prompt_tokens_details={"cached_tokens": 600})
    assert Prices(2.0, 10.0, 0.5).of(cached) == pytest.approx(0.0021)
    assert Prices(2.0, 10.0).of(cached) == pytest.approx(0.003)
    assert Prices(2.0, 10.0, 0.5).of(usage(1_000, 100, prompt_tokens_details=None)) == pytest.approx(0.003)


@pytest.mark.parametrize("reply", [{}, {"usage": None}, {"usage": {"prompt_tokens": 3}}, [], "text"])
def test_what_is_not_said_is_not_guessed(reply: object) -> None:
    assert Prices(2.0, 10.0).of(reply) is None


def test_requests_count_for_the_work_in_whose_context_they_are_made() -> None:
    """Two pieces of work at once, one of which asks in tasks of its own; an unknown cost makes a sum unknown."""

    async def first() -> dict[str, float | None]:
        with spending() as money:
            await asyncio.gather(*(asyncio.create_task(paid("web", 0.5)) for _ in range(3)))
            spend("judge", 0.25)
            spend("judge", None)
            spend("judge", 0.25)
        return money

    async def second() -> dict[str, float | None]:
        with spending() as money:
            await paid("web", 2.0)
        return money

    async def paid(part: str, money: float) -> None:
        await asyncio.sleep(0)
        spend(part, money)

    async def both() -> list[dict[str, float | None]]:
        return await asyncio.gather(first(), second())

    assert asyncio.run(both()) == [{"web": 1.5, "judge": None}, {"web": 2.0}]
    spend("web", 1.0)  # nobody counts: nothing happens
