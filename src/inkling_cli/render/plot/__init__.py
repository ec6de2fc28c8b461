"""The picture of an adapter's norms as a file: SVG, PNG or HTML, written with nothing installed."""

from inkling_cli.render.plot.write import require_plot_path, write_plot

__all__ = ["require_plot_path", "write_plot"]
