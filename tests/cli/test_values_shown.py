"""The numbers of an adapter as people and programs see them, and as a picture in a file."""

import json
import math
import struct
import zlib
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import torch

from factories import TINY, raw_config, write_released_adapter
from inkling_cli.render.heat import State, make_heat
from inkling_cli.render.layer_rows import LAYER_ROWS
from inkling_cli.render.plot import write_plot
from inkling_cli.render.plot.canvas import make_canvas
from inkling_cli.render.plot.png import GLYPHS
from inkling_cli.render.values import render_values, values_object
from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.model_spec import parse_model_spec
from inkling_runtime.adapter.site_pairs import gather_sound_pairs
from inkling_runtime.adapter.sites import Site, SiteKind
from inkling_runtime.adapter.values import AdapterValues, DeltaValues
from inkling_runtime.adapter.values.read import read_values
from inkling_runtime.errors import InklingError

SVG = "{http://www.w3.org/2000/svg}"
LAYER = "language_model.layers.{}"


def spoil(tensors):
    """Make one module NaN, one zero, and leave one without its B."""
    tensors[f"{LAYER.format(1)}.attn.wq_du.lora_B.weight"][0] = float("nan")
    tensors[f"{LAYER.format(2)}.attn.wq_du.lora_B.weight"].zero_()
    del tensors[f"{LAYER.format(3)}.attn.wq_du.lora_B.weight"]
    tensors["extra"] = torch.zeros(3, dtype=torch.int8)


def read(folder) -> AdapterValues:
    adapter = read_adapter(folder)
    pairs, _ = gather_sound_pairs(adapter, parse_model_spec(raw_config(TINY)))
    return read_values(adapter, pairs)


@pytest.fixture
def values(tmp_path):
    return read(write_released_adapter(tmp_path / "a"))


@pytest.fixture
def spoiled(tmp_path):
    return read(write_released_adapter(tmp_path / "a", edit=spoil))


def rows_of(text: str) -> dict[str, str]:
    """Return the cells of each row of the picture."""
    lines = text.partition("by layer")[2].splitlines()[2:]
    return {line[:12].strip(): line[12:] for line in lines if line}


def test_the_picture_has_a_row_for_each_kind_and_a_column_for_each_layer(values):
    rows = rows_of(render_values(values).plain)
    assert list(rows) == [*(label for label, _ in LAYER_ROWS), "all", "head"]
    assert {len(cells) for label, cells in rows.items() if label in "qkvro"} == {4}
    assert rows["dense gate"].strip("░▒▓█") == ""
    assert rows["routed w1"].startswith(" ")
    assert len(rows["head"]) == 1


def test_what_has_no_norm_is_marked_and_named(spoiled):
    text = render_values(spoiled).plain
    assert rows_of(text)["q"][1:] == "!·?"
    for words in ("! NaN or Inf", "· zero", "? not computed"):
        assert words in text
    assert "not read  1 tensors: extra" in text
    assert "NaN or Inf in language_model.layers.1.attn.wq_du.lora_B.weight" in text
    assert "layers.3.attn.wq_du; the first: its module is not sound" in text
    assert "all finite" not in text


def test_a_sound_adapter_is_said_to_be_finite_with_what_was_read(values):
    first = render_values(values).plain.partition("\n")[0]
    assert first == f"values    {values.bytes_read:,} bytes of 82 tensors read, all finite"


def test_an_adapter_without_any_delta_has_no_picture():
    text = render_values(AdapterValues({}, {}, 0)).plain
    assert text == "values    0 bytes of 0 tensors read, none judged\n"


def test_names_from_the_file_are_made_printable(tmp_path):
    def edit(tensors):
        tensors["a\x1b[31m"] = torch.tensor([float("nan")])

    text = render_values(read(write_released_adapter(tmp_path / "a", edit=edit))).plain
    assert "\x1b" not in text
    assert "a\\x1b[31m" in text


def test_darkness_follows_the_logarithm_of_the_norm():
    sites = {
        Site(layer, SiteKind.Q): DeltaValues(norm, 1.0, 2, 1.0, (), int(norm == 0))
        for layer, norm in enumerate([100.0, 10.0, 1.0, 0.01, 0.0])
    }
    heat = make_heat(AdapterValues({}, sites, 0))
    cells = dict(heat.rows)["q"]
    assert [round(cell.darkness, 6) for cell in cells] == [1, 0.5, 0, 0, 0]
    assert [cell.state for cell in cells] == [State.NORM] * 4 + [State.ZERO]
    assert heat.norm_at(0.5) == pytest.approx(10)


@pytest.mark.parametrize("layer", [10**9, 511, 512])
def test_absurd_layer_numbers_make_no_endless_picture(layer):
    delta = DeltaValues(1.0, 1.0, 2, 1.0, (), 0)
    heat = make_heat(AdapterValues({}, {Site(layer, SiteKind.Q): delta}, 0))
    assert len(heat.layers) == (layer + 1 if layer < 512 else 1)


def test_the_object_is_json_without_nan(spoiled):
    found = values_object(spoiled)
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text) == found
    assert [entry["tensor"] for entry in found["not_read"]] == ["extra"]
    assert [entry["num_nan"] for entry in found["not_finite"]] == [2]
    assert [entry["site"] for entry in found["not_computed"]] == [
        "layers.1.attn.wq_du",
        "layers.3.attn.wq_du",
    ]


def test_the_object_has_shares_layers_and_sites(values):
    found = values_object(values)
    assert sum(group["share"] for group in found["groups"]) == pytest.approx(1)
    assert [entry["layer"] for entry in found["layers"]] == [None, 0, 1, 2, 3]
    total = math.sqrt(sum(site["norm"] ** 2 for site in found["sites"]))
    assert total == pytest.approx(found["norm"])
    experts = next(s for s in found["sites"] if s["site"] == "layers.1.mlp.experts.w1")["experts"]
    assert experts["count"] == TINY.experts
    assert 0 < experts["min_norm"] <= experts["max_norm"]


def test_the_svg_has_a_titled_rectangle_for_each_cell(tmp_path, spoiled):
    write_plot(spoiled, tmp_path / "p.svg")
    root = ElementTree.fromstring((tmp_path / "p.svg").read_bytes())
    assert root.tag == f"{SVG}svg"
    titles = {title.text for title in root.iter(f"{SVG}title")}
    assert {"layers.1.attn.wq_du: NaN or Inf", "layers.2.attn.wq_du: zero"} <= titles
    assert {"layers.3.attn.wq_du: not computed"} <= titles
    named = {title.partition(":")[0] for title in titles}
    assert {str(site) for site in spoiled.sites} <= named
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.get("x", 0)) + float(rect.get("width")) <= float(root.get("width"))


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the chunks of a PNG, their checksums compared."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    found, position = [], 8
    while position < len(data):
        (length,) = struct.unpack_from(">I", data, position)
        body = data[position + 4 : position + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, position + 8 + length)
        assert checksum == zlib.crc32(body)
        found.append((body[:4], body[4:]))
        position += 12 + length
    return found


def test_the_png_is_whole_and_shows_the_cells_colours(tmp_path, spoiled):
    write_plot(spoiled, tmp_path / "p.png")
    chunks = png_chunks((tmp_path / "p.png").read_bytes())
    assert [name for name, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, kind, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, kind, rest) == (8, 2, [0, 0, 0])
    pixels = zlib.decompress(chunks[1][1])
    assert len(pixels) == height * (1 + 3 * width)
    canvas = make_canvas(make_heat(spoiled))
    assert (canvas.width, canvas.height) == (width, height)
    for box in canvas.boxes:
        at = (box.y + box.height // 2) * (1 + 3 * width) + 1 + 3 * (box.x + box.width // 2)
        assert tuple(pixels[at : at + 3]) == box.colour


def test_the_font_has_every_character_that_a_picture_may_hold(spoiled):
    texts = "".join(label.text for label in make_canvas(make_heat(spoiled)).labels)
    texts += "".join(state.value for state in State) + "1.5e-07 1e+10 0123456789"
    assert set(texts.upper()) <= set(GLYPHS)
    assert {len(rows) for rows in GLYPHS.values()} == {5}
    assert set("".join(GLYPHS.values())) <= set("01234567")


class Page(HTMLParser):
    """Counts tags and requires that each that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        for name, value in attributes:
            assert name not in ("src", "href"), value
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(tmp_path, values):
    write_plot(values, tmp_path / "p.html")
    page = Page()
    page.feed((tmp_path / "p.html").read_text("utf-8"))
    page.close()
    assert page.open == []
    assert page.seen.count("svg") == 1
    assert page.seen.count("table") == 3
    assert "script" not in page.seen
    assert page.seen.count("tr") == 3 + 5 + 5 + len(values.sites)


@pytest.mark.parametrize("name", ["p.svg", "p.PNG", "p.html"])
def test_an_existing_picture_is_replaced_and_nothing_else_is_left(tmp_path, values, name):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).write_bytes(b"old")
    write_plot(values, folder / name)
    first = (folder / name).read_bytes()
    write_plot(values, folder / name)
    assert (folder / name).read_bytes() == first != b"old"
    assert [path.name for path in folder.iterdir()] == [name]


def test_another_ending_is_an_error_that_names_the_three(tmp_path, values):
    with pytest.raises(InklingError, match=r"ends in `.pdf`, expected one of .svg, .png, .html"):
        write_plot(values, tmp_path / "p.pdf")


def test_only_a_regular_file_is_replaced(tmp_path, values):
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "real.svg").write_text("mine")
    (tmp_path / "link.svg").symlink_to("real.svg")
    for name in ("folder.svg", "link.svg"):
        with pytest.raises(InklingError, match="no regular file"):
            write_plot(values, tmp_path / name)
    assert (tmp_path / "real.svg").read_text() == "mine"


def test_a_folder_that_does_not_exist_is_an_error(tmp_path, values):
    with pytest.raises(InklingError, match="does not exist"):
        write_plot(values, tmp_path / "none" / "p.svg")
