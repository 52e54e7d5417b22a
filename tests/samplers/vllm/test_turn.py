"""A turn that is put together from replies."""

import pytest
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.http.limits import TransientError
from evoseek.samplers.torch.stops import StopRules
from evoseek.samplers.vllm.turn import Sampled, Turn, check_sampled
from evoseek.types import SampleRequest, StopConditions


def test_tokens_of_a_reply_that_is_refused_are_no_part_of_the_turn():
    """An engine that stops where nothing stops has another tokenizer; the turn continues after what was right."""
    tokenizer = tiny_tokenizer()
    request = SampleRequest("t", 0, (5, 6), 8, 1.0, StopConditions(("</answer>",)), 0)
    turn = Turn(request, StopRules(tokenizer, [1]), vocabulary=len(tokenizer), version=0, paces=None)
    assert turn.add(Sampled((9,), (-0.5,), None)) is None
    with pytest.raises(TransientError, match="it stopped after 3 tokens, but at none of the stop strings"):
        turn.add(Sampled((5, 3), (-0.5, -0.5), "stop"))
    assert turn.rest().token_ids == (5, 6, 9)


@pytest.mark.parametrize("bad", [False, None, 0.0, ""])
def test_what_is_no_token_id_is_none_even_if_it_is_nothing(bad):
    request = SampleRequest("t", 0, (5, 6), 8, 1.0, StopConditions(), 0)
    with pytest.raises(TransientError, match=f"the token id {bad!r}, but the policy's go from 0 to 9"):
        check_sampled(Sampled([1, bad], [-0.5, -0.5], "stop"), request, 10)
