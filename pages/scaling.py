"""Why sqrt(d_k): a head that is not divided freezes, while it trains and before."""

from functools import partial

from engine.chapter.experiments import SCALES, SCALING, SCALING_LONG
from lab import bench, probes
from lab.sections.scaling import notice, others, parts, probe, rescue
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section

SECTION = section("scaling.py")

settings = Settings("scaling")
width = settings.choice("width", "Width shown", {row.id: row.short for row in parts.PAIRS}, "1024")
collapsed = settings.value("rescue", rescue.named, None)
pairs = settings.choice("pairs", "Pairs", probe.PAIRS, 20_000, shown="{:,}".format, widget="slider")
widest = settings.choice(
    "widest", "Widths up to", probe.D_HEADS[1:], 1024, shown="{:,}".format, widget="slider"
)

frame.header(
    SECTION,
    SCALING.question,
    "A score is a sum of d_k products, so it grows with √d_k, and softmax turns large scores into a hard "
    "choice. Train one head at four widths, divided by √d_k and not, and watch it.",
    settings,
)
sweep = bench.train(
    SCALING,
    settings,
    also=(SCALING_LONG,),
    questions=notice.QUESTIONS,
    figure=partial(parts.widths_figure, width=width),
    tables=(parts.perplexity_table, parts.scores_table, parts.beside_the_chapter),
    caption=parts.caption,
    under=parts.budget_line,
    notice=notice.notice,
    waits=False,
)
frame.sources(SCALES, "The code of the head, and what each variant changes")
rescue.draw(sweep, collapsed, settings)
others.as_wide(sweep.request, settings)
probes.beside(partial(probe.draw, pairs, widest, settings))
others.other_scales(sweep.request, settings)
frame.footer(SECTION, settings)
