r"""What `verify` must say of words, signs, labels, units and sentences: the rows that a policy could otherwise exploit."""
# ruff: noqa: E501, RUF001  (tables are read by column; models write these signs)

EQUAL = {
    "one answer in several precisions": [
        (r"\frac13≈0.333", "1/3"), (r"\pi≈3.14", r"\pi"), (r"\pi≈3.14", "3.14"), ("0.5≈0.504", "0.504"), ("0.504≈0.5", "0.5"), (r"\frac13 \approx 0.3333 \approx 0.33", "1/3"), (r"x = \frac{2}{3} \approx 0.667", "x=2/3"),
        (r"\sqrt2 = 2^{1/2} ≈ 1.414", r"\sqrt2"), (r"x \sim 5", "5"), (r"12\pi \approx 37.7", r"12\pi"), (r"\frac13\text{ (about 0.333)}", "1/3"), (r"2500\pi≈7854", r"2500\pi"),
    ],
    "labels": [("A. 12", "12"), ("(A) 12", "(A)"), ("B)", "B"), ("Option B", "B"), (r"\text{Option B}", "(B)"), ("(A) x", "x"), ("choice (C)", "C")],
    "letters": [
        ("cba", "abc"), ("bac", "abc"), (r"a\cdot b\cdot c", "abc"), ("abc^2", "c^2ab"), ("sin x cos x", r"\cos x\sin x"), ("xyz", "xyz"), ("mgh", "hgm"), ("theta", r"\theta"), ("XYZ", "XYZ"), (r"\text{abc}", "abc"),
        ("tuesday", "Tuesday"), ("MONDAY", "Monday"), ("yes", "Yes"), ("NO", "no"), ("bob", "Bob"), ("well-defined", r"\text{well-defined}"), ("arctan x", r"\arctan x"), ("ln abc", r"\ln(abc)"), ("-abc", "-bca"), (r"\text{A+B}", "A+B"),
        ("right triangle", "Right Triangle"), ("kite", "Kite"), ("hyperbola", r"\text{hyperbola}"), ("2\\alpha", "2α"), ("AB", "AB"),
        ("nRT", "RTn"), ("GmM", "MmG"), ("dne", "DNE"), ("V=lwh", "hwl"), ("ab+bc+ca", "ca+ab+bc"), ("2 sin x", r"2\sin x"), ("none", "None"),
    ],
    "units": [
        ("3 months", "3"), ("5 red apples", "5"), ("3 millions", "3000000"), ("3 dozens", "36"), ("3 lakh", "300000"), ("2 crore", "20000000"), ("5 score", "100"), ("3 quadrillion", "3 000 000 000 000 000"),
        ("5 m/s^2", "5"), (r"5\frac{\text{m}}{\text{s}}", "5"), (r"5\ \frac{\mathrm{m}}{\mathrm{s}^2}", "5"), ("5m", "5"), ("5s", "5"), ("5L", "5"), ("5 N", "5"), ("5 J", "5"), ("5°C", "5"), ("20 ℃", "20"), ("5 ㎡", "5"), ("100 Ω", "100"),
        ("¥5", "5"), ("₹5", "5"), ("US$5", "5"), ("50¢", "50"), (r"\text{\$}5", "5"), ("5 in.", "5 inches"), ("5 cubic inches", r"5\text{ in}^3"), ("5 kWh", "5"),
    ],
    "nouns": [
        (f"{number} {noun}", number) for number, nouns in {"5": "cups|pens|eggs|men|cards|pts|students|people|ways|cm tall|feet per second|sq ft", "12": "square units|km per hour|hrs|ft/s|ft^2"}.items() for noun in nouns.split("|")
    ],
    "sets of reals": [
        (r"\mathbb{R}", "ℝ"), (r"\mathbb{R}^+", r"(0,\infty)"), (r"\mathbb R", r"\mathbb{R}"), ("All real numbers.", r"\mathbb{R}"), (r"\mathbb{R}^-", "x<0"), (r"\mathbb{R}-\{0\}", r"(-\infty,0)\cup(0,\infty)"),
    ],
    "and, or": [
        ("x>1 and x<2", "1<x<2"), ("x>1 and x<2", "(1,2)"), (r"x<2 \land x>1", "1<x<2"), (r"x \ge 1 \text{ and } x < 2", "[1,2)"), ("x<1 or x>2", r"(-\infty,1)\cup(2,\infty)"), (r"x<1 \lor x>2", "x>2 or x<1"), ("1<x<2", "x>1 and x<2"),
        (r"x<1 \text{ or } x>2", "x<1 or x>2"), ("x>1 and x<2", "x<2 and x>1"), ("x>1, y<2", "x>1 and y<2"), ("1<x and x<2", r"1<x \text{ and } x<2"),
    ],
    "names": [("2, 3", "a=2, b=3"), ("b=3, a=2", "a=2, b=3"), ("y=2, x=1", "(1,2)"), ("a=b=5", "5"), (r"\frac{dy}{dx}=2x", "2x"), (r"(\pm2,3)", "(2,3), (-2,3)"), ("x=1, x=2", "2, 1")],
    "wrappers": [
        (r"\text{The answer is }5", "5"), (r"\text{Answer: }5", "5"), (r"\text{x=}5", "5"), (r"\color{red}5", "5"), (r"\textcolor{red}{5}", "5"), (r"\underline{5}", "5"), (r"\large 5", "5"), (r"5\tag{1}", "5"), ('"5"', "5"),
        (r"\left.\frac12\right.", "0.5"), (r"5\checkmark", "5"), (r"{1\over2}", "0.5"), (r"\nicefrac12", "0.5"), (r"\sfrac{1}{2}", "0.5"), (r"{5\choose2}", "10"), (r"\surd2", r"\sqrt2"), ("+-2", r"\pm 2"), ("+/-2", "2, -2"), ("5 (five)", "5"),
        (r"\textbf{\text{5}}", "5"), (r"\Large{5}", "5"), ("'5'", "5"),
    ],
    "matrices": [
        (r"\left[\begin{array}{cc}1&2\\3&4\end{array}\right]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"), (r"\begin{Bmatrix}1&2\\3&4\end{Bmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"), (r"\begin{pmatrix}1&2\cr3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\frac12\begin{pmatrix}2&4\\6&8\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"), (r"-\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}-1\\-2\end{pmatrix}"),
    ],
    "unicode": [
        ("ε", r"\epsilon"), ("σ+μ", r"\mu+\sigma"), ("Δ", r"\Delta"), ("Ω", r"\Omega"), ("ℤ", r"\mathbb{Z}"), ("1⁄2", "0.5"), ("1∕2", "0.5"), ("⅐", "1/7"), ("∛8", "2"), ("2•3", "6"), ("5º", "5"), ("5。", "5"), ("\u20605", "5"), ("50٪", "50%"),
    ],
    "bases": [("af_{16}", "AF_{16}"), ("(AF)_{16}", "AF_{16}"), ("1010_{(2)}", "1010_2"), ("1010 (base 2)", "1010_2"), (r"1010\text{ base }2", "1010_2"), (r"1010_{\text{base }2}", "1010_2"), ("2a_{16}", "2A_{16}")],
    "infinity and functions": [("Infinity", r"\infty"), (r"\text{infinity}", r"\infty"), ("atan(1)", r"\frac{\pi}{4}"), (r"x\equiv5\pmod 7", r"x\equiv5\pmod{7}"), ("3:30 p.m.", "3:30 pm"), ("3{:}30", "3:30"), (r"3:30\text{ p.m.}", "3:30 PM")],
}  # fmt: skip

UNEQUAL = {
    "hedges by ≈": [
        ("498≈499≈500≈501", "500"), ("498≈499≈500", "498"), ("498≈499≈500", "499"), ("498≈499≈500", "500"), (r"1000\sim1001", "1001"), (r"1000\sim1001", "1000"), (r"3.14≈3.141≈\pi≈3.15", "3.15"), (r"3.14≈3.141≈\pi≈3.15", r"\pi"),
        ("700≈701≈702≈703≈704", "704"), ("≈".join(map(str, range(995, 1005))), "1000"), (r"\frac13≈0.34", "1/3"), ("0.333≈0.334", "0.333"), (r"\frac13≈0.333", "0.334"), (r"5 ≈ \sqrt{26}", "5.1"), ("0.5≈0.504", "0.51"), ("5 cm≈5 m", "5 cm"), ("1≈2", "1"), ("1≈2", "2"), ("5≈5.4≈5.45", "5.4"),
        ("498≈500", "498"), (r"\frac10≈5", "5"), ("A≈C", "A"), ("12345≈12000", "12000"),
    ],
    "hedges by label": [
        ("A. C", "A"), ("A. C", "C"), ("(A) C", "A"), ("(A) C", "C"), ("A: D", "A"), ("A: D", "D"), ("A) (C)", "A"), ("A) (C)", "C"), (r"\text{(A)}\ C", "C"), ("(A) (B) 12", "(B) 12"), ("(B) 12", "(C) 12"), ("Option A. C", "C"), ("A. c", "A"), ("A) 5 C) 6", "A"), ("A: 5, C: 6", "A"),
        ("A or C", "A"), ("A = C", "A"), ("A/C", "A"), ("A C", "C"), ("(A)(C)", "A"),
    ],
    "signs that words would lose": [
        ("xyz", "-xyz"), ("-abc", "abc"), ("mgh", "-mgh"), ("mgh", "mg-h"), ("theta", r"-\theta"), ("sin x cos x", r"-\sin x\cos x"), ("sinx cosx", r"\sin x-\cos x"), ("log a log b", r"\log a-\log b"), ("abcd", "a(bc-d)"), ("xyz", "(x-y)z"),
        ("ab-cd", "abcd"), ("abc!", "abc"), ("XYZ", "xyz"), ("xyz", "XYZ"), ("arctan x", r"-\arctan x"), ("ln abc", r"-\ln abc"), (r"\text{A+B}", "AB"), ("abc", "abd"), (r"\text{xyz}", "-xyz"), ("xyz", r"\text{-xyz}"),
    ],
    "letters in order": [("on", "no"), ("BA", "AB"), ("CAB", "ABC"), ("BAC_{16}", "ABC_{16}"), ("ABC_{16}", "BAC_{16}"), ("AF_{15}", "AF_{16}"), ("A_{16}", "B_{16}"), ("17", "17x"), ("VI", "IV"), ("-AF_{16}", "AF_{16}"), ("1010 (base 3)", "1010_2")],
    "number words are no units": [
        *((f"{number} {word}", number) for number, words in {
            "3": "eighths fifths quadrillion millions dozens lakh crore halves quarters million", "2": "tenths tau pi hundredths", "5": "thousandths score point\u00a0five root\u00a0two squared cubed doubled twelfths million",
            "7": "tripled factorial quadrupled halved", "0.3": "recurring repeating bar repeated"}.items() for word in words.replace("\u00a0", "_").split() for word in [word.replace("_", " ")]),
        ("5th", "5"), ("3rd", "3"), ("1st", "1"), (r"5^{\text{th}}", "5"), (r"3\text{ eighths}", "3"), (r"5\text{ squared}", "5"), ("5 to the fourth", "5"), ("5", "5m"), ("5m", "5 cm"), ("5x", "5"), ("5n", "5"), ("3 twenty-fifths", "3"), ("2ab", "2"), ("2", "2ab"), ("5 abc", "5"), ("5 xyz", "5"),
        ("5 bazillion", "5"), ("5 tenfold", "5"), ("5 inverted", "5"), ("5 either", "5"), ("5 opposite", "5"), ("5 three", "5"), ("5K", "5"), (r"5\text{ (or 6)}", "5"), ("5 in", "5 cm"), ("5 in^2", "5 in"), ("5 m/s", "5 m/s^2"),
    ],
    "what is not all reals, nor empty": [
        (r"\mathbb{R}^+", r"\mathbb{R}"), (r"\mathbb{R}^-", r"\mathbb{R}"), (r"\mathbb{R}_{+}", r"\mathbb{R}"), (r"-\mathbb{R}", r"\mathbb{R}"), (r"\{\mathbb{R}\}", r"\mathbb{R}"), (r"\{\emptyset\}", r"\emptyset"), (r"\mathbb{R}^2", r"\mathbb{R}"),
        (r"\mathbb{R}", r"\mathbb{R}^+"), (r"\emptyset", r"\{\emptyset\}"),
    ],
    "and, or": [
        ("x<1 and x>2", "x<1 or x>2"), ("x>1 or x<2", "x>1 and x<2"), ("x>1 or x<2", "1<x<2"), ("x>1 and x<2", r"\mathbb{R}"), ("x<1 and x>2", r"(-\infty,1)\cup(2,\infty)"), ("x>1 or y<2", "x>1 and y<2"), ("y>1 and y<2", "1<x<2"), ("x>1 and x<3", "1<x<2"),
    ],
    "names": [("3, 2", "a=2, b=3"), (r"x \in 5", "5"), (r"x \in 5", "x=5"), ("x=2, y=1", "(1,2)"), ("a=3, b=2", "a=2, b=3"), ("a=b=6", "5"), ("5=b=6", "5"), (r"\frac{dy}{dx}=3x", "2x"), ("a=3, b=2", "2, 3")],
    "wrappers": [(r"\textcolor{red}{6}", "5"), ("+-2", "2"), ("5 (six)", "6"), ("5(x)", "5"), (r"{1\over2}", "2"), (r"\text{half of }5", "5"), (r"\text{-}5", "5"), (r"\overline{5}", "5")],
    "matrices": [(r"\frac12\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"), (r"\begin{Bmatrix}1&2\\3&5\end{Bmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}")],
}  # fmt: skip

_FIVE_CHANGED = (
    "5 times 3|5 over 7|5 plus 2|5 minus 2|5 squared|5 factorial|5 divided by 2|5 less than 12|5 hundredths|5 mod 3|5 choose 2|5 (or 6)|5 maybe 6|not equal to 5|less than 5|no more than 5|between 3 and 5|the square root of 5|"
    "5 or 6|at most 5|never 5|negative 5|5 (6)|5 more than 7|either 5 or 6|5, or 6|5 perhaps|5 and 6|5, 6|5 times|two times 5|the cube of 5|5/x|5:30|5 eighths|half of 5|−5|(−5)|5 to 7|5x|5i"
)  # fmt: skip
_SEVEN_CHANGED = (
    "√7|2√7|sqrt(7)|log_2(7)|ln 7|sin(7)|2(7)|7 squared|7 factorial|minus 7|negative 7|half of 7|1 over 7|3 times 7|10 minus 7|5 and 7|3;7|3|7|[3, 7]|x=3,y=7|3:7|5 to 7|at most 7|not 7|never 7|twice 7|"
    r"7\sqrt2|\pm 7|±7|-(7)|7 or more|7 cubed|7 tenths|less than 7|more than 7|5, 7|5 or 7|7 plus x|7 over x|7 less than x|a multiple of 7"
)  # fmt: skip

RESPONSES = [
    *((f"The answer is {said}.", "5", {"no_answer", "incorrect"}) for said in _FIVE_CHANGED.split("|") if said != "5 times"),
    *((f"The area is {said}.", "7", {"no_answer", "incorrect"}) for said in _SEVEN_CHANGED.replace("3|7", "3\\7").split("|") for said in [said.replace("3\\7", "3|7")]),
    *((said, gold, {"no_answer", "incorrect"}) for said, gold in [
        ("The answer isn't 5", "5"), ("The answer can't be 5", "5"), ("The answer cannot be 5.", "5"), ("It cannot be 7.", "7"), ("It is never 7", "7"), ("7 is wrong", "7"), ("It is 3:30.", "30"), ("5, 7", "7"), ("5 and 7", "7"), ("x=3,y=7", "7"), ("[3, 7]", "7"),
        ("3|7", "7"), ("7 squared", "7"), ("def f():\n return 5", "5"), ("It isn't 7.", "7"), ("I doubt that it is 7", "7"), ("7 is not the answer", "7"), ("The answer is (A) C", "A"), ("The answer is (A) C", "C"), ("<answer>A. D</answer>", "A"),
        ("<answer>A. D</answer>", "D"), ("#### (A) C", "A"), ("#### (A) C", "C"), ("It is not Tuesday.", "Tuesday"), ("The answer is B or C.", "B"), ("The answer is not B.", "B"), ("I would not choose B.", "B"), ("The answer is exactly 6.", "5"),
        ("The correct option is not B", "B"), ("The solutions are 1 and 3.", "1,2"), ("The area is not 36π.", r"36\pi"), ("7!", "7"), ("It is 2 to the 5", "5"), ("2 raised to 5", "5"), ("2**5", "5"),
        ("It's 10% of 5", "5"), ("4–5", "5"), ("log base 5", "5"), ("divisible by 5", "5"), ("The answer is 5 ab", "5"), ("The answer is 5 or 6", "5"), ("#### 5 squared", "5"), ("<answer>5 or 6</answer>", "5"), ("one of 3, 4 or 5", "5"),
        ("3 mod 5", "5"), ("C(7,5)", "5"), ("7 choose 5", "5"), ("5th", "5"), ("print(5)", "5"), ("5 isn't it", "5"), ("The answer is one over 5", "5"),
    ]),
    *((said, gold, {"correct"}) for said, gold in [
        ("The answer is 5.", "5"), ("#### 5", "5"), ("= 5", "5"), ("5 apples", "5"), ("x = 5", "5"), ("The answer is 5 apples.", "5"),
        ("The answer is option (B).", "B"),
        ("7!", "5040"), (r"\framebox{5}", "5"),
        ("3 + 4 = 7", "7"), ("The answer is 5 (five).", "5"),
        ("The answer is -5.", "-5"), ("The answer is 50 percent.", "50%"),
        ("The answer is √49.", "7"), ("The answer is 5 miles per hour.", "5"),

        ("So the answer is choice C.", "C"), ("The answer is (A) 12", "A"),
    ]),
    *((rf"\boxed{{{said}}}", gold, {status}) for said, gold, status in [
        ("5", "The answer is 5.", "correct"), ("5", "answer: 5", "correct"), ("5", "<answer>5</answer>", "correct"), ("5", "['5']", "correct"), ("5", '"5"', "correct"), ("5", "5 (five)", "correct"), ("6", "The answer is 5.", "incorrect"), ("5", r"\frac{}{}", "gold_invalid"),
        ("5", "5)", "gold_invalid"), ("5", "((5)", "gold_invalid"), ("B", "B)", "correct"), ("12", "B) 12", "correct"), ("5", "**5**", "correct"), ("5", "[5]", "correct"), ("5", "5 +", "gold_invalid"), ("5", "The result depends on 5 and 7 of them", "gold_invalid"),
        (r"\frac12", "The final answer is $\\frac{1}{2}$.", "correct"),
    ]),
]  # fmt: skip
