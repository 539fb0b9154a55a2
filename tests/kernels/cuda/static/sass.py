"""What nvdisasm prints of a cubin, as functions, blocks and loops, and what a loop costs.

A phase is code that handles elements: an innermost loop around global accesses, or the code outside of
loops where accesses of 8 bytes and more stand there. Its way calls no subroutine where it need not, leaves
out the blocks of narrow accesses, which are for rows that are not aligned, and moves most bytes; of such
ways it is the longest. `shortest` is the least number of instructions of such a way: in a kernel whose
dtypes are known only when it runs, the longest one decodes each operand in the slowest way.
"""
import dataclasses
import re

LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;?\s*(?:\(\*(.*)\*\))?;?$")
LABEL = re.compile(r"^(\.L_x_\d+|\$\S+):")
SECTION = re.compile(r"^\.text\.(\S+):$")
TARGET = re.compile(r"\.L_x_\d+")
DIVISION = re.compile(r"(div|rem)_[us]64\b")
WIDE = 8  # bytes: outside of loops, accesses below are scales, not elements


@dataclasses.dataclass
class Instruction:
    predicate: str
    opcode: str
    operands: str
    note: str

    def is_op(self, *names):
        return self.opcode.split(".")[0] in names

    def width(self):
        """Bytes of a memory access."""
        for part in self.opcode.split(".")[1:]:
            if part in ("U8", "S8"):
                return 1
            if part in ("U16", "S16"):
                return 2
            if part in ("64", "128", "256"):
                return int(part) // 8
        return 4

    def branches(self):
        """A far branch is a call of a label."""
        return self.is_op("BRA", "BRX", "BRXU", "JMP") or (self.is_op("CALL") and ".L_x_" in self.operands)

    def loads(self):
        return self.is_op("LDG", "LD", "LDGSTS")

    def stores(self):
        return self.is_op("STG", "ST")

    def divides_64(self):
        return (self.is_op("CALL") and DIVISION.search(self.operands) is not None) or \
            self.opcode.startswith(("I2F.U64.RP", "I2F.S64.RP"))


@dataclasses.dataclass
class Block:
    instructions: list = dataclasses.field(default_factory=list)
    targets: list = dataclasses.field(default_factory=list)

    def widest(self, kind):
        return max((i.width() for i in self.instructions if getattr(i, kind)()), default=0)

    def bytes(self, kind, width):
        return sum(i.width() for i in self.instructions if getattr(i, kind)() and i.width() == width)

    def calls(self):
        return any(i.is_op("CALL") and not i.branches() for i in self.instructions)


@dataclasses.dataclass
class Phase:
    """Of one turn of a loop, or of the code outside: what its way has."""
    in_loop: bool
    instructions: int
    shortest: int
    load: int         # bytes of the widest loads
    store: int
    load_width: int
    store_width: int
    divides_64: bool

    def kind(self):
        return self.load > 0, self.store > 0


class Function:
    """One kernel: blocks by number, in the order of addresses; block 0 is the entry."""

    def __init__(self, name, lines):
        self.name = name
        self.blocks = [Block()]
        labels = {}
        for line in lines:
            label = LABEL.match(line)
            if label:
                if label[1].startswith("$"):
                    break  # subroutines follow
                if self.blocks[-1].instructions:
                    self.blocks.append(Block())
                labels[label[1]] = len(self.blocks) - 1
                continue
            found = LINE.match(line)
            if not found:
                continue
            _, predicate, opcode, operands, note = found.groups()
            one = Instruction(predicate or "", opcode, operands, note or "")
            self.blocks[-1].instructions.append(one)
            if one.branches() or one.is_op("EXIT", "RET"):
                self.blocks.append(Block())
        self.instructions = [i for b in self.blocks for i in b.instructions]
        self._connect(labels)
        self.loops = self._find_loops()

    def _connect(self, labels):
        for number, block in enumerate(self.blocks):
            last = block.instructions[-1] if block.instructions else None
            falls = True
            if last is not None and last.branches():
                names = TARGET.findall(last.operands + last.note)
                block.targets = [labels[n] for n in names if n in labels]
                # BRA P2, label and BRA.U UP0, label are conditional without an @.
                falls = bool(last.predicate) or (last.is_op("BRA", "JMP") and "," in last.operands)
            elif last is not None and last.is_op("EXIT", "RET"):
                falls = bool(last.predicate)
            if falls and number + 1 < len(self.blocks):
                block.targets.append(number + 1)

    def _find_loops(self):
        """Natural loops, as {header: blocks}."""
        order, seen = [], set()
        stack = [(0, iter(self.blocks[0].targets))]
        seen.add(0)
        while stack:
            number, targets = stack[-1]
            following = next((t for t in targets if t not in seen), None)
            if following is None:
                order.append(number)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(self.blocks[following].targets)))
        order.reverse()
        before = {n: [] for n in order}
        for n in order:
            for t in self.blocks[n].targets:
                before[t].append(n)
        every = set(order)
        dominators = {n: every for n in order}
        dominators[0] = {0}
        changed = True
        while changed:
            changed = False
            for n in order[1:]:
                new = set.intersection(*(dominators[p] for p in before[n])) | {n}
                if new != dominators[n]:
                    dominators[n], changed = new, True
        loops = {}
        for n in order:
            for header in self.blocks[n].targets:
                if header not in dominators[n]:
                    continue
                body, work = loops.setdefault(header, {header}), [n]
                while work:
                    at = work.pop()
                    if at not in body:
                        body.add(at)
                        work += before[at]
        self.reached = every
        return loops

    def _way(self, start, inside, left_out, ends, widths, sign):
        """The blocks of the way from `start` to one of `ends` with most bytes of wide accesses, and
        of those the longest, or with sign -1 the shortest; empty where there is none."""
        best, open_blocks = {}, set()

        def walk(number):
            # Iterative: kernels have more blocks than Python has frames.
            stack = [(number, 0)]
            while stack:
                at, step = stack.pop()
                if step == 0:
                    if at in best or at in open_blocks:
                        continue
                    open_blocks.add(at)
                    stack.append((at, 1))
                    stack += [(t, 0) for t in self.blocks[at].targets
                              if t in inside and t not in left_out and t != start]
                    continue
                open_blocks.discard(at)
                ways = [best[t] for t in self.blocks[at].targets
                        if t != start and best.get(t) is not None]
                if at in ends:
                    ways.append((0, 0, ()))
                found = max(ways, key=lambda w: w[:2], default=None)
                block = self.blocks[at]
                moved = sum(block.bytes(kind, width) for kind, width in widths if width)
                best[at] = None if found is None else (
                    moved + found[0], sign * len(block.instructions) + found[1], (at,) + found[2])
            return best.get(number)
        found = walk(start)
        return () if found is None else found[2]

    def _reaches(self, start, inside, left_out, ends):
        seen, work = {start}, [start]
        while work:
            at = work.pop()
            if at in ends:
                return True
            new = [t for t in self.blocks[at].targets if t in inside and t not in left_out | seen]
            seen.update(new)
            work += new
        return False

    def _phase(self, start, body, in_loop):
        blocks = self.blocks
        least = 1 if in_loop else WIDE
        load = max((blocks[n].widest("loads") for n in body), default=0)
        store = max((blocks[n].widest("stores") for n in body), default=0)
        load, store = (w if w >= least else 0 for w in (load, store))
        widths = ("loads", load), ("stores", store)
        if in_loop:
            ends = {n for n in body if start in blocks[n].targets}
        else:
            ends = {n for n in body if any(i.is_op("EXIT") for i in blocks[n].instructions)}

        def narrow(block):
            wide = (load and block.widest("loads") == load) or (store and block.widest("stores") == store)
            return not wide and (block.widest("loads") or block.widest("stores"))
        left_out = set()
        for unwanted in (Block.calls, narrow):
            for number in sorted(n for n in body if n != start and unwanted(blocks[n])):
                if self._reaches(start, body, left_out | {number}, ends):
                    left_out.add(number)
        way, short = (self._way(start, body, left_out, ends, widths, sign) for sign in (1, -1))
        return Phase(in_loop, *(sum(len(blocks[n].instructions) for n in w) for w in (way, short)),
                     sum(blocks[n].bytes("loads", load) for n in way),
                     sum(blocks[n].bytes("stores", store) for n in way), load, store,
                     any(i.divides_64() for n in body for i in blocks[n].instructions))

    def phases(self):
        """The phases of the kernel, of each kind (loads, stores) the one that handles most."""
        widest = max((self.blocks[n].widest("loads") for n in self.reached), default=0)

        def has_elements(block, least):
            return block.widest("loads") == widest >= least or block.widest("stores") >= least
        inner = []
        for header, body in sorted(self.loops.items(), key=lambda item: len(item[1])):
            if any(has_elements(self.blocks[n], 1) for n in body) and \
                    not any(other <= body for _, other in inner):
                inner.append((header, body))
        found = [self._phase(header, body, True) for header, body in inner]
        outside = self.reached - set().union(*(body for _, body in inner)) if inner else self.reached
        if any(has_elements(self.blocks[n], WIDE) for n in outside):
            found.append(self._phase(0, self.reached if not inner else outside, False))
        most = {}
        for phase in found:
            kept = most.get(phase.kind())
            if phase.kind() != (False, False) and (kept is None or phase.load + phase.store >
                                                  kept.load + kept.store):
                most[phase.kind()] = phase
        return list(most.values())

    def local_accesses(self):
        return sum(i.is_op("LDL", "STL") for i in self.instructions)


def functions(text):
    """Every kernel of nvdisasm's text."""
    name, lines, found = None, [], []
    for line in text.splitlines():
        start = SECTION.match(line)
        if start or line.startswith("//-----"):
            if name:
                found.append(Function(name, lines))
            name, lines = (start[1] if start else None), []
        elif name:
            lines.append(line)
    if name:
        found.append(Function(name, lines))
    return found
