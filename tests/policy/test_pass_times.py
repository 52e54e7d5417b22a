from evoseek.policy.stops import PassTimes


def test_a_pass_counts_as_five_usual_ones_at_most():
    times = PassTimes()
    assert [times.own(seconds) for seconds in (1.0, 1.0, 3.0, 100.0, 1.0, 5.0, 5.5)] == [
        1.0, 1.0, 3.0, 5.0, 1.0, 5.0, 5.5
    ]  # fmt: skip


def test_of_two_passes_the_shorter_one_is_usual():
    times = PassTimes()
    assert [times.own(100.0), times.own(1.0), times.own(100.0)] == [100.0, 1.0, 100.0]
    times = PassTimes()
    assert [times.own(1.0), times.own(100.0)] == [1.0, 5.0]


def test_a_machine_that_stays_slower_is_followed():
    """Of the last 101 passes 51 are slow from the 51st slow one on."""
    times = PassTimes()
    for _ in range(200):
        times.own(1.0)
    assert [times.own(10.0) for _ in range(60)] == [5.0] * 50 + [10.0] * 10
