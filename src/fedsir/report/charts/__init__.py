"""Charts as SVG that takes its colours from the page's stylesheet. Each is drawn for wide and for narrow windows."""
