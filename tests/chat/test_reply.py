from tml_renderers import chat
from tml_renderers.tokenizers import O200kBaseChatTokenizer
from tml_renderers.v0 import Renderer

from inkling_runtime.chat.reply import PartKind, ReplySplitter, ToolCall, join_pieces, parse_reply
from inkling_runtime.chat.tokenizer import InklingTokenizer

TOKENIZER = InklingTokenizer()
MODEL, END, STOP = 200001, 200010, 200006
THINKING, TEXT, TOOL = 200008, 200004, 200049
CALL = '{"name":"get_weather","args":{"city":"Rome"}}'


def message(kind, text, author=""):
    return [MODEL, *TOKENIZER.encode(author), kind, *TOKENIZER.encode(text), END]


WHOLE = [
    *message(THINKING, "Let me see."),
    *message(TEXT, "It spells <|end_message|> here."),
    *message(TOOL, CALL, author="get_weather"),
    STOP,
]


def test_a_reply_falls_into_its_parts():
    reply = parse_reply(WHOLE, TOKENIZER)
    assert reply.thinking == "Let me see."
    assert reply.text == "It spells <|end_message|> here."
    assert reply.tool_calls == (ToolCall("get_weather", {"city": "Rome"}, CALL),)


def test_the_parts_are_those_that_tml_renderers_finds():
    user = chat.OpenAIMessage.from_oss_messages([{"role": "user", "content": "?"}])
    _, parser = Renderer(O200kBaseChatTokenizer()).render_for_completion_with_effort(user, 0.9)
    contents = [parsed.content for parsed in parser.parse_tokens(WHOLE)]
    reply = parse_reply(WHOLE, TOKENIZER)
    assert [c.text for c in contents if isinstance(c, chat.Thinking)] == [reply.thinking]
    assert [c.text for c in contents if isinstance(c, chat.Text)] == [reply.text]
    assert [c.name for c in contents if isinstance(c, chat.InvokeTool)] == ["get_weather"]


def test_a_reply_that_is_cut_counts_up_to_the_cut():
    reply = parse_reply(WHOLE[:-8], TOKENIZER)
    assert reply.text == "It spells <|end_message|> here."
    assert reply.tool_calls[0].name is None
    assert CALL.startswith(reply.tool_calls[0].raw)


def test_a_reply_without_a_header_is_text():
    assert parse_reply(TOKENIZER.encode("Hello there"), TOKENIZER).text == "Hello there"


def test_two_calls_stay_apart():
    reply = parse_reply([*message(TOOL, CALL, "a"), *message(TOOL, "[1]", "b"), STOP], TOKENIZER)
    assert [call.raw for call in reply.tool_calls] == [CALL, "[1]"]
    assert [call.name for call in reply.tool_calls] == ["get_weather", None]


def test_pieces_come_as_tokens_come():
    splitter = ReplySplitter(TOKENIZER)
    pieces = [piece for token_id in WHOLE for piece in splitter.add(token_id)]
    assert len(pieces) > 10
    assert [piece.kind for piece in pieces if piece.starts] == [
        PartKind.THINKING,
        PartKind.TEXT,
        PartKind.TOOL_CALL,
    ]
    assert join_pieces(pieces) == parse_reply(WHOLE, TOKENIZER)
