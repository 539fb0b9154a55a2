"""The reader of machine code and the rules, on recorded lines and planted faults. Needs no toolkit."""
import pathlib
import tempfile
import unittest

import model
import sass
import static_check
import toolchain

# A loop as nvdisasm prints it: 16 elements of 2 bytes a turn, one code each. L_2 is for rows that are
# not aligned, L_4 for a denominator that needs all 64 bits.
LOOP = """
//--------------------- .text._ZN6octavo4cuda16cast_rows_kernelEv --------------------------
.text._ZN6octavo4cuda16cast_rows_kernelEv:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @P0  LDG.E R8, desc[UR12][R8.64] ;
.L_x_1:
        /*0020*/                   ISETP.GE.AND P1, PT, R0, UR4, PT ;
        /*0030*/              @!P1 BRA `(.L_x_2) ;
        /*0040*/                   LDG.E.128 R4, desc[UR12][R2.64] ;
        /*0050*/                   LDG.E.128.CONSTANT R8, desc[UR12][R2.64+0x10] ;
        /*0060*/                   F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R4, R4, R5, RZ ;
        /*0070*/                   STG.E.128 desc[UR12][R12.64], R4 ;
        /*0080*/                   BRA `(.L_x_3) ;
.L_x_2:
        /*0090*/                   LDG.E.U16 R4, desc[UR12][R2.64] ;
        /*00a0*/                   IMAD.MOV.U32 R5, RZ, RZ, R4 ;
        /*00b0*/                   IMAD.MOV.U32 R5, RZ, RZ, R4 ;
        /*00c0*/                   IMAD.MOV.U32 R5, RZ, RZ, R4 ;
        /*00d0*/                   IMAD.MOV.U32 R5, RZ, RZ, R4 ;
        /*00e0*/                   STG.E.U8 desc[UR12][R12.64], R4 ;
.L_x_3:
        /*00f0*/                   IADD3 R0, R0, 0x1, RZ ;
PLANTED
        /*0120*/               @P0 BRA `(.L_x_1) ;
        /*0130*/                   EXIT ;
$__internal_0_$__cuda_sm20_div_s64:
        /*0140*/                   STL [R1], R4 ;
        /*0150*/                   RET.REL.NODEC R10 `(_ZN6octavo4cuda16cast_rows_kernelEv) ;
"""
SPILL = "        /*0100*/                   STL.64 [R1+0x8], R4 ;"
DIVISION = "        /*0100*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64) ;"
INLINE = "        /*0100*/                   I2F.U64.RP R4, R2 ;"
FAR = "        /*0100*/              @P3 CALL.REL.NOINC `(.L_x_4) ;"
TILE = """
.text._ZN6octavo4cuda11cast_kernelEv:
        /*0000*/                   LDG.E R8, desc[UR12][R8.64] ;
        /*0010*/                   LDG.E.128 R4, desc[UR12][R2.64] ;
        /*0020*/                   BRA.U !UP0, `(.L_x_9) ;
        /*0030*/                   STG.E.64 desc[UR12][R12.64], R4 ;
        /*0040*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
.L_x_9:
        /*0050*/               @P0 EXIT ;
        /*0060*/                   STG.E.64 desc[UR12][R14.64], R4 ;
        /*0070*/                   STG.E desc[UR12][R16.64], R4 ;
        /*0080*/                   EXIT ;
.L_x_10:
        /*0090*/                   BRA `(.L_x_10);
"""
PTXAS = """ptxas info    : Compiling entry function '_ZN6octavo4cuda16cast_rows_kernelEv' for 'sm_90'
ptxas info    : Function properties for _ZN6octavo4cuda16cast_rows_kernelEv
    5376 bytes stack frame, 44 bytes spill stores, 92 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 5376 bytes cumulative stack size, 128 bytes smem
"""
ROW = {"kernel": "cast_rows_kernel", "in": "2", "out": "1", "given": "", "way": "longest", "read": "2", "written": "1",
       "load": "16", "store": "8", "most": "1.0", "not_yet": "", "what": ""}


def measured(planted="", row=ROW, stack=0):
    function, = sass.functions(LOOP.replace("PLANTED", planted))
    return static_check.measure(function, {"registers": 32, "stack": stack}, row)


def broken(found, **row):
    return static_check.broken_rules(found, {**ROW, **row})


class Reader(unittest.TestCase):
    def test_a_loop_is_its_aligned_way(self):
        found = measured()
        self.assertEqual((found["elements"], found["load"], found["store"]), (16, 16, 16))
        self.assertEqual(found["bytes"], 3)
        self.assertEqual(found["instr"], round(9 / 16, 1))
        self.assertEqual(broken(found), [])

    def test_local_memory(self):
        self.assertEqual(broken(measured(SPILL)), ["local"])

    def test_division_of_64_bits(self):
        self.assertEqual(broken(measured(DIVISION)), ["div64"])
        self.assertEqual(broken(measured(INLINE)), ["div64"])

    def test_a_far_branch_is_no_call(self):
        self.assertEqual(broken(measured(FAR)), [])
        function, = sass.functions(LOOP.replace("PLANTED", FAR))
        self.assertFalse(any(b.calls() for b in function.blocks))

    def test_stack(self):
        self.assertEqual(toolchain.read_ptxas(PTXAS),
                         {"_ZN6octavo4cuda16cast_rows_kernelEv": {"stack": 5376, "registers": 64}})
        self.assertEqual(broken(measured(stack=8)), ["stack"])

    def test_narrow_accesses(self):
        narrow = LOOP.replace(".128", ".64").replace("PLANTED", "")
        function, = sass.functions(narrow)
        found = static_check.measure(function, {"registers": 32, "stack": 0}, ROW)
        self.assertEqual(found["elements"], 8)
        self.assertEqual(broken(found, most="2"), ["load"])

    def test_too_many_instructions(self):
        self.assertEqual(broken(measured(), most="0.4"), ["instr"])

    def test_bytes_that_are_not_those_of_the_table(self):
        self.assertEqual(broken(measured(row={**ROW, "read": "4"}), read="4"), ["bytes"])

    def test_a_tile_without_loops(self):
        function, = sass.functions(TILE)
        row = {**ROW, "written": "2"}
        found = static_check.measure(function, {"registers": 32, "stack": 0}, row)
        self.assertEqual((found["elements"], found["bytes"]), (8, 4))
        self.assertEqual(found["instr"], round(9 / 8, 1))

    def test_a_kernel_whose_elements_are_not_found(self):
        function, = sass.functions(LOOP.replace("LDG", "LDS").replace("STG", "STS").replace("PLANTED", ""))
        found = static_check.measure(function, {"registers": 32, "stack": 0}, ROW)
        self.assertEqual(broken(found), ["found"])


class Table(unittest.TestCase):
    def compare(self, found, not_yet="", before=None):
        return static_check.compare({"cast_rows_kernel": {**ROW, "not_yet": not_yet}},
                                    {("cast_rows_kernel", "90"): found}, before or {})

    def test_a_broken_rule_fails(self):
        self.assertIn("breaks the rule local", self.compare(measured(SPILL))[0])

    def test_a_rule_that_is_not_kept_yet_is_listed(self):
        self.assertEqual(self.compare(measured(SPILL), "local"), [])

    def test_a_listed_rule_that_is_kept_fails(self):
        self.assertIn("take it off not_yet", self.compare(measured(), "local")[0])

    def test_more_than_was_measured_fails(self):
        found = measured()
        before = {("cast_rows_kernel", "90"): {k: str(v) for k, v in found.items()}}
        self.assertEqual(self.compare(found, before=before), [])
        self.assertIn("of instr", self.compare({**found, "instr": found["instr"] + 0.1}, before=before)[0])

    def test_a_line_that_is_missing_fails(self):
        self.assertIn("no line", self.compare(measured(), before={("other_kernel", "90"): {}})[0])

    def test_every_kernel_has_a_row(self):
        self.assertEqual(static_check.undeclared(*static_check.read_kernels()), [])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "new.cuh"
            path.write_text("template <typename A>\n__global__ void __launch_bounds__(kSide *kSide)\n"
                            "    new_kernel(A a) {}\n", encoding="utf-8")
            wrong = static_check.undeclared({"old_kernel": {}}, [], [pathlib.Path(folder)])
        self.assertEqual(len(wrong), 2, wrong)
        self.assertIn("new_kernel is in device code", wrong[0])

    def test_flags_are_those_of_the_build(self):
        self.assertIn("-fmad=false", toolchain.flags())
        self.assertIn("--expt-relaxed-constexpr", toolchain.flags())
        self.assertEqual(toolchain.architectures(), ["89", "90", "100", "120"])

    def test_the_predictions_are_of_measured_csv(self):
        written = static_check.MODEL.read_text(encoding="utf-8")
        self.assertEqual(written, model.table(static_check.read_measured()[0]), "run static_check.py --update")


class Prediction(unittest.TestCase):
    def test_a_cast_is_bound_by_what_is_slower(self):
        device = model.Device("fake", copy=3e12, clock=1e9, multiprocessors=100)  # issues 12.8e12
        row = {("cast_rows_kernel", model.ARCH): {"instr": "25.6"}}
        self.assertAlmostEqual(model.Model(device, row).share(3, "cast_rows_kernel"), 0.5)
        row = {("cast_rows_kernel", model.ARCH): {"instr": "6.4"}}
        self.assertAlmostEqual(model.Model(device, row).share(3, "cast_rows_kernel"), 1.0)


if __name__ == "__main__":
    unittest.main()
