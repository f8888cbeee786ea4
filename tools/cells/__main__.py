"""Prints the figures of docs/explanation/scale.md, as the tables that it quotes: `python -m tools.cells`."""

from __future__ import annotations

from statistics import median, quantiles

from tools.cells import moves, placement


def population_table() -> list[str]:
    tenants = placement.population()
    cells = placement.placed(tenants)
    hashed = placement.hashed(tenants, len(cells))
    top = max(tenants, key=lambda one: one.per_s)
    return [
        "| | |",
        "|---|---|",
        f"| executions per second, all tenants | {placement.PER_S:,.0f} |",
        f"| share of the largest tenant, of the largest 100 | {placement.share_of_largest(tenants, 1):.1%}, "
        f"{placement.share_of_largest(tenants, 100):.0%} |",
        f"| largest tenant, executions per second | {top.per_s:,.0f} |",
        f"| cells, filled to {placement.FILL:.0%} through the directory | {len(cells)} |",
        f"| fullest of them | {max(cell.full for cell in cells):.0%} |",
        f"| fullest of {len(cells)} cells, if a hash selects the cell | {max(cell.full for cell in hashed):.0%} |",
    ]


def year_table() -> list[str]:
    lines = [
        "| moved from a full cell | cells | moves | jobs moved | pause s: median, p99, longest | fullest |",
        "|---|---|---|---|---|---|",
    ]
    years = {name: placement.year(choice) for name, choice in placement.CHOICES.items()}
    for name, result in years.items():
        p99 = quantiles(result.pauses, n=100)[98]
        pauses = f"{result.median_s:.0f}, {p99:.0f}, {result.longest_s:.0f}"
        lines.append(
            f"| {name} | {result.cells_before} to {result.cells_after} | {result.moves:,} | "
            f"{result.jobs_moved / 1e6:.1f} million | {pauses} | {result.fullest:.0%} |"
        )
    return [*lines, "", f"The largest tenant then has {years['the largest'].largest_per_s:,.0f} executions per second."]


def loss_table() -> list[str]:
    losses = placement.losses()
    worst = max(losses, key=lambda one: one.jobs)
    return [
        "| one cell lost | median | worst |",
        "|---|---|---|",
        f"| tenants | {median(one.tenants for one in losses):,.0f} | {max(one.tenants for one in losses):,} |",
        f"| share of the load | {median(one.share for one in losses):.1%} | {max(one.share for one in losses):.1%} |",
        f"| cells opened to restore it | {median(one.opened for one in losses):.0f} | "
        f"{max(one.opened for one in losses)} |",
        f"| minutes to write its definitions again | {median(one.restore_s for one in losses) / 60:.0f} | "
        f"{worst.restore_s / 60:.0f} |",
    ]


def move_table() -> list[str]:
    lines = [
        "| guard left out | instants | decided twice | lost | repeats rejected by id | latest decision, s |",
        "|---|---|---|---|---|---|",
    ]
    for name, guards in moves.VARIANTS.items():
        result = moves.trials(guards)
        lines.append(
            f"| {name} | {result.due:,} | {result.twice:,} | {result.lost:,} | {result.rejected:,} | "
            f"{result.latest_s} |"
        )
    return lines


TABLES = {"Population": population_table, "A year": year_table, "A loss": loss_table, "Moves": move_table}

if __name__ == "__main__":
    for title, table in TABLES.items():
        print(f"{title}\n")
        print("\n".join(table()), end="\n\n")
