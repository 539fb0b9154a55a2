"""The pictures of docs/recipes.md: which elements share a scale, and what msamp's levels keep.

  recipe_pictures.py <docs/pictures>           compares the folder with what this script draws
  recipe_pictures.py --write <docs/pictures>   draws them

Each SVG has a background of its own, and other colours where the reader's system is dark.
"""
import html
import pathlib
import sys

WIDTH = 760
STYLE = """text{font:13px sans-serif;fill:#222}.small{font-size:11.5px;fill:#555}.page{fill:#fcfcfa}
.c0{fill:#9ec3e6}.c1{fill:#f4c78f}.c2{fill:#a8d5a2}.c3{fill:#d9b3dd}.c4{fill:#f2b0ab}.c5{fill:#cfcf8f}
.cell{stroke:#fcfcfa;stroke-width:1}.frame{fill:none;stroke:#444}.bar{fill:#7f8a99}.top{fill:#b3470f}
@media (prefers-color-scheme:dark){text{fill:#e6e6e6}.small{fill:#b0b0b0}.page{fill:#1c1f26}
.c0{fill:#2f5f8f}.c1{fill:#8f5f1f}.c2{fill:#3b7035}.c3{fill:#71457a}.c4{fill:#8a3f3a}.c5{fill:#6a6a2a}
.cell{stroke:#1c1f26}.frame{stroke:#b0b0b0}.top{fill:#ff9d5c}}"""

# recipe -> (title, how many scales x [M, K] has down and across, the same of w [N, K], the two captions)
RECIPES = {
    "delayed": ("delayed: one scale for a tensor, from the maxima of earlier steps", (1, 1), (1, 1),
                "x: one scale", "w: one scale"),
    "current": ("current: one scale for a tensor, from its own maximum", (1, 1), (1, 1),
                "x: one scale", "w: one scale"),
    "block": ("block: scales of 1 x 128 elements for x and dy, of 128 x 128 for w", (12, 3), (2, 3),
              "x: one scale for 128 elements of a row", "w: one scale for 128 x 128"),
    "mx": ("mx: scales of 32 elements, powers of two", (12, 12), (12, 12),
           "x: one scale for 32 elements of a row", "w: the same"),
    "nvfp4": ("nvfp4: scales of 1 x 16 elements for x and dy, of 16 x 16 for w, and one for the tensor", (12, 16),
              (6, 16), "x: one scale for 16 elements of a row", "w: one scale for 16 x 16"),
    "rowwise": ("rowwise: a scale for each row of what a product multiplies, powers of two", (12, 1), (12, 1),
                "x: one scale for a row", "w: one scale for a row"),
}
# Bytes an element of a linear's weight, as docs/config.md has them: fp32 AdamW and msamp's levels.
PARTS = ["weight", "gradient", "first moment", "second moment", "master weight"]
LEVELS = {"fp32": (4, 4, 4, 4, 0), "O1": (2, 1, 4, 4, 0), "O2": (2, 1, 1, 2, 0), "O3": (1, 1, 1, 2, 2)}


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'


def box(x, y, width, height, kind):
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}"/>'


def page(title, height, shapes):
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
                      f'viewBox="0 0 {WIDTH} {height}" role="img">', f"<title>{html.escape(title)}</title>",
                      f"<style>{STYLE}</style>", box(0, 0, WIDTH, height, "page"), *shapes, "</svg>"]) + "\n"


def matrix(x, y, width, height, scales):
    """A matrix whose parts of one colour share a scale; neighbours differ."""
    down, across = scales
    parts = [box(x + width * j / across, y + height * i / down, width / across, height / down,
                 f"c{(2 * i + j) % 6} cell") for i in range(down) for j in range(across)]
    return [*parts, box(x, y, width, height, "frame")]


def history(x, y, height):
    """The maxima of earlier steps as bars, the largest marked."""
    maxima = [.45, .5, .62, .55, .95, .7, .66, .6]
    return [box(x + 14 * i, y + height * (1 - v), 10, height * v, "top" if v == max(maxima) else "bar")
            for i, v in enumerate(maxima)]


def recipe(name):
    title, of_x, of_w, below_x, below_w = RECIPES[name]
    left = 190 if name == "delayed" else 24
    shapes = [text(24, 26, title)]
    if name == "delayed":
        shapes += history(24, 44, 120) + [text(24, 186, "maxima of earlier steps:", "small"),
                                          text(24, 202, "the largest gives the scale", "small")]
    shapes += matrix(left, 44, 260, 120, of_x) + matrix(left + 300, 44, 220, 120, of_w)
    shapes += [text(left, 186, below_x, "small"), text(left + 300, 186, below_w, "small")]
    return page(title, 214, shapes)


def levels():
    title, left, unit = "Bytes an element of a linear's weight, without caches", 80, 36
    shapes = [text(24, 26, title)]
    for row, (name, sizes) in enumerate(LEVELS.items()):
        y, x = 46 + 34 * row, left
        shapes.append(text(left - 12, y + 17, name, anchor="end"))
        for kind, size in enumerate(sizes):
            if size:
                shapes += [box(x, y, unit * size, 24, f"c{kind} cell"),
                           text(x + unit * size / 2, y + 17, str(size), anchor="middle")]
                x += unit * size
        shapes.append(text(x + 10, y + 17, f"= {sum(sizes)}"))
    for kind, name in enumerate(PARTS):
        x = left + 132 * kind
        shapes += [box(x, 190, 12, 12, f"c{kind}"), text(x + 18, 201, name, "small")]
    return page(title, 216, shapes)


def main():
    folder = pathlib.Path(sys.argv[-1])
    drawn = {f"recipe_{name}.svg": recipe(name) for name in RECIPES} | {"msamp_levels.svg": levels()}
    for name, svg in drawn.items():
        file = folder / name
        if sys.argv[1] == "--write":
            file.write_text(svg, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != svg:
            sys.exit(f"{file}: expected what this script draws; run recipe_pictures.py --write {folder}")
    print(f"{len(drawn)} pictures")


if __name__ == "__main__":
    main()
