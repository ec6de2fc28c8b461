from inkling_cli.render.generation import LiveReplies


def replies(*headings):
    written = []
    return LiveReplies(headings, written.append), written


def test_an_only_reply_is_written_as_it_comes_without_a_heading():
    live, written = replies("[base] 3 4")
    live.add(0, "text", "5", True)
    assert "".join(written) == "5"
    live.add(0, "text", " 6", False)
    live.finish(0)
    assert "".join(written) == "5 6\n"


def test_later_replies_wait_for_their_turn():
    live, written = replies("[a] x", "[b] x")
    live.add(1, "text", "second", True)
    live.finish(1)
    live.add(0, "text", "first", True)
    assert "second" not in "".join(written)
    live.finish(0)
    assert "".join(written) == "[a] x\nfirst\n\n[b] x\nsecond\n"


def test_parts_of_a_chat_reply_are_told_apart():
    live, written = replies("x")
    live.add(0, "thinking", "Hm", True)
    live.add(0, "thinking", "m.", False)
    live.add(0, "text", "Hello", True)
    live.add(0, "tool call", "{}", True)
    live.finish(0)
    assert "".join(written) == "thinking: Hmm.\nHello\ntool call: {}\n"


def test_control_characters_of_a_model_do_not_reach_the_terminal():
    live, written = replies("x")
    live.add(0, "text", "a\x1b[31m\nb", True)
    live.finish(0)
    assert "".join(written) == "a\\x1b[31m\nb\n"


def test_an_empty_reply_is_an_empty_line():
    live, written = replies("x")
    live.finish(0)
    assert "".join(written) == "\n"
