r"""What `verify` must say, by kind of trouble. Rows are (boxed answer, gold); many are shaped after public bug reports.

The reports: Math-Verify 1, 10, 14, 25, 26, 35, 37, 41, 56, 60, 63, 64, 67, 71, 76; Qwen2.5-Math 50; MathRuler 2;
lm-evaluation-harness 2212, 3785; verl 5331, 7440, 7603; slime 1586; marin 9163; ds4 319.
"""
# ruff: noqa: E501, RUF001  (tables are read by column; models write these signs)

EQUAL = {
    "numbers": [
        ("72", "72"), ("72.0", "72"), ("072", "72"), ("+72", "72"), ("-3", "-3"), ("−3", "-3"), ("0.50", "0.5"),
        (".5", "0.5"), ("1/2", "0.5"), (r"\frac{1}{2}", "1/2"), (r"\dfrac{1}{2}", r"\frac12"), (r"\tfrac12", "0.5"),
        (r"\frac 59", r"\frac{5}{9}"), (r"-\frac{1}{2}", r"\frac{-1}{2}"), (r"\frac{1}{-2}", "-0.5"), ("2/4", "1/2"),
        (r"\frac{9}{19}", r"\frac9{19}"), ("½", r"\frac12"), ("$42$", "42"), (r"\(42\)", "42"), ("42.", "42"),
        (r"\text{13}", "13"), (r"\mathbf{13}", "13"), ("**73**", "73"), ("-0", "0"), ("1.", "1"), ("00", "0"),
        ("082", "82"), (".0000672", "0.0000672"), (".35625", r"\frac{57}{160}"), (r"-\frac{35}{9}", r"\frac{-35}{9}"),
    ],
    "thousands": [
        ("1,234", "1234"), ("1234", "1,234"), (r"10{,}080", r"10,\!080"), (r"11,\!111,\!111,\!100", "11111111100"),
        ("58,500", "58500"), ("1,234,567", "1234567"), ("1,234.5", "1234.5"), (r"\$32,\!348", "32348"),
        (r"1\,234", "1234"), ("-1,000", "-1000"), ("100,200,300", "100, 200, 300"), ("3, 5, 7", "3,5,7"),
    ],
    "mixed and repeating": [
        (r"1\frac{1}{2}", r"\frac32"), ("1 1/2", "1.5"), (r"137 \frac{1}{2}", "137.5"), ("2½", "5/2"),
        (r"-1\frac{1}{2}", "-1.5"), (r"0.\overline{3}", r"\frac13"), (r"0.1\overline{6}", "1/6"), ("0.333...", "1/3"),
        (r"0.\overline{142857}", r"\frac17"), (r"0.\bar{3}", "1/3"), (r"0.\overline{9}", "1"), ("0.666...", r"\frac23"),
        ("0.(3)", r"\frac13"), ("1.(6)", "5/3"), ("2.(5)", "23/9"), (r"0.\dot{3}", "1/3"), (r"0.\dot3", "1/3"), (r"0.1\dot{6}", "1/6"), (r"0.\dot{1}4285\dot{7}", "1/7"),
        (r"0.181818\ldots", "2/11"), (r"0.33\ldots", "1/3"), ("0.1666...", "1/6"), ("0.083333...", "1/12"), ("0.5(8)", "4"), (r"0.(142857)", r"\frac17"),
    ],
    "scientific": [
        ("1.2e3", "1200"), (r"1.2\times10^3", "1200"), (r"1.2 \times 10^{3}", "1200"), (r"1.2\cdot 10^{3}", "1200"),
        ("1.2 x 10^3", "1200"), ("1.2*10^3", "1200"), ("1.2 × 10³", "1200"), ("1.2E-3", "0.0012"), ("5e0", "5"),
        (r"6.72 \times 10^{-5}", ".0000672"), ("1e-5", r"10^{-5}"), ("10^6", "1000000"), (r"2\times 10^{-3}", "1/500"),
    ],
    "roots and powers": [
        (r"\sqrt{8}", r"2\sqrt{2}"), (r"11\sqrt2", r"11\sqrt{2}"), ("√2", r"\sqrt{2}"), ("2√3", r"\sqrt{12}"),
        ("sqrt(2)", r"\sqrt{2}"), (r"\sqrt 2", "2^{1/2}"), (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt3}"), ("2^10", "1024"),
        ("2**10", "1024"), ("2^{-3}", r"\frac18"), (r"\sqrt[3]{8}", "2"), (r"\sqrt[3]{-8}", "-2"), (r"4^{\frac32}", "8"),
        (r"\frac{3\sqrt{3}}{4}", r"\frac34\sqrt3"), (r"\sqrt{9}", "3"), (r"\frac{6}{\sqrt{2}}", r"3\sqrt2"), ("√(16)", "4"),
        (r"\sqrt{5+2\sqrt6}", r"\sqrt2+\sqrt3"), (r"2^{2^{3}}", "256"), (r"2^{2^{2^2}}", "65536"), ("x^{-1}", r"\frac1x"),
        (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}"), (r"\frac{1}{2^{99}}", "2^{-99}"), (r"-\sqrt{3}", r"-\frac{3}{\sqrt3}"),
    ],
    "constants and functions": [
        ("2π", r"2\pi"), ("2pi", r"2\pi"), (r"\frac{\pi}{6}", r"\pi/6"), (r"\pi \div 8 + 1 \div 2", r"0.5+\frac{\pi}{8}"),
        (r"\sin 30^\circ", r"\frac12"), (r"\tan\frac{\pi}{4}", "1"), (r"\log_2 8", "3"), (r"\ln e^2", "2"), ("e^0", "1"),
        (r"\cos^2 x", r"1-\sin^2 x"), (r"\cot x", r"\frac{1}{\tan x}"), (r"2\sin x\cos x", r"\sin 2x"), ("5!", "120"),
        (r"\binom{5}{2}", "10"), (r"\arctan 1", r"\frac{\pi}{4}"), (r"\sin^{-1} 1", r"\frac\pi2"), (r"|{-3}|", "3"),
        (r"\lfloor 3.7 \rfloor", "3"), (r"\log 100", "2"), (r"\frac{2006!}{2004!}", r"2005 \cdot 2006"), ("n!", "n(n-1)!"),
        (r"1 - \frac{1}{\mathrm{e}}", r"\frac{e-1}{e}"), (r"\exp(2)", "e^2"), (r"\ln 8", r"3\ln 2"), ("288π", r"288 \pi"),
        (r"\frac{20000}{\pi}", r"20000\pi^{-1}"), (r"18+2\pi", r"2(9+\pi)"), (r"\infty", "infinity"), (r"+\infty", r"\infty"),
    ],
    "complex": [
        ("6 - 5i", "6-5i"), ("-5i+6", "6-5i"), ("(1+i)^2", "2i"), (r"\frac{1}{i}", "-i"), ("i^2", "-1"), ("1+274i", "1 + 274i"),
        (r"e^{i\pi}", "-1"), (r"\sqrt{-4}", "2i"), (r"\frac{1+i}{\sqrt2}", r"e^{i\pi/4}"), (r"\frac{-1+i\sqrt3}{2}", r"e^{2\pi i/3}"),
    ],
    "polynomials": [
        ("(x+1)^2", "x^2+2x+1"), ("x(x-1)", "x^2-x"), ("p-q", "-q+p"), ("(a+5)(b+2)", "(b+2)(a+5)"), ("3R^2", "3R^{2}"),
        ("6r^2-4r-24", "-24-4r+6r^2"), (r"\frac{x^2-1}{x-1}", "x+1"), ("x²+1", "x^2+1"), ("2(x+y)", "2x+2y"), ("2k+2", "2(k+1)"),
        (r"8n^2 + 4n + 1", "4n(2n+1)+1"), (r"x\cdot x", "x^2"), ("xy", "y x"), (r"\frac{11+9a}{20}", r"\frac{9a}{20}+\frac{11}{20}"),
        ("a_1+a_2", "a_{2}+a_{1}"), (r"\theta+1", r"1+\theta"), (r"5r^5", r"5 r^{5}"), (r"\ln x^2", r"2\ln x"), ("15x-80", "5(3x-16)"),
        (r"\sqrt{x}^2", "x"), (r"\ln x+\ln y", r"\ln(xy)"), (r"\sqrt{x}\sqrt{y}", r"\sqrt{xy}"), ("|x|^2", "x^2"), (r"\frac{\cos\pi x}{\sin\pi x}", r"\cot(\pi x)"), (r"\frac{n(n-1)}{2}", r"\binom{n}{2}"),
        (r"|x-y|", "|y-x|"), (r"\cos x+i\sin x", "e^{ix}"), (r"\frac{x^2-9}{x-3}", "x+3"), (r"\sqrt{x^2+1}", r"\sqrt{1+x^2}"), (r"\lfloor -x\rfloor", r"-\lceil x\rceil"), (r"\frac{\sin x}{\cos x}", r"\tan x"),
    ],
    "lists and sets": [
        ("1,-2", "-2,1"), (r"\{1,2\}", "2, 1"), ("1 and 2", "1,2"), ("1 or 2", "2,1"), (r"1 \text{ and } 2", "1,2"),
        (r"\{1\pm\sqrt{5},-2\}", r"-2, 1-\sqrt5, 1+\sqrt5"), (r"1 \pm \sqrt{19}", r"1-\sqrt{19},1+\sqrt{19}"), (r"\pm 2", "2,-2"),
        (r"\frac{1\pm\sqrt5}{2}", r"\frac{1+\sqrt5}{2}, \frac{1-\sqrt5}{2}"), ("x=1 or x=2", "1,2"), ("x=1, x=2", r"\{1,2\}"),
        ("x = 1, 2", "1,2"), ("1;2", "1,2"), ("3, 5, 7", "3,5,7"), (r"\{5\}", "5"), (r"\varnothing", r"\emptyset"),
        (r"\{\}", r"\emptyset"), ("19, 46, and 82", r"19, 46, \text{ and } 82"), ("[1,2,3]", "1,2,3"), (r"x=\pm 3", r"\pm 3"),
        ("n=2, 3, 4", "$n=4,3,2$"), ("red and blue", "blue, red"), ("1, 2, ..., n", r"1, 2, \ldots, n"), ("{1,2}", r"\{1,2\}"),
    ],
    "tuples and intervals": [
        ("(1,2)", "(1, 2)"), (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)"), ("(2,\\infty)", r"(2, +\infty)"), ("(3,4]", r"\left(3,4\right]"),
        (r"(-\infty, 0]", r"(-\infty,0]"), (r"(0,9) \cup (9,36)", r"(9,36)\cup(0,9)"), ("[-2,7]", r"x \in [-2,7]"), ("(x,y)=(1,2)", "(1,2)"),
        (r"x \in [-2,7]", "[-2,7]"), (r"-2 \le x \le 7", r"x \in [-2,7]"), ("x>3", r"(3,\infty)"), (r"(3,\infty)", "x>3"), ("3<x", "x>3"),
        ("x<2 or x>3", r"(-\infty,2)\cup(3,\infty)"), (r"(0, 12.5)", "0 < x < 12.5"), (r"m \geq \sqrt{2}", r"m \in [\sqrt{2}, +\infty)"),
        (r"\mathbb{R}", r"(-\infty,\infty)"), (r"\text{all real numbers}", r"\mathbb{R}"), (r"\langle 1,2\rangle", "(1,2)"), ("(0,1)U(1,2)", r"(0,1)\cup(1,2)"),
        (r"\left(\frac{3}{5},\frac{8}{3}\right]", "(0.6, 8/3]"), ("x≥3", r"[3,\infty)"), ("D = (0, 1)", "(0,1)"), ("(1,-16,-4,43)", "(1, -16, -4, 43)"),
    ],
    "relations": [
        ("x=5", "5"), ("5", "x=5"), ("x = 5", "x=5"), ("5=x", "x=5"), ("y=2x+3", "2x+3"), ("2x+3", "y = 2x + 3"), ("f(x)=x^2", "x^2"),
        (r"y = -\frac{1}{2}x + \frac34", "2x+4y-3=0"), ("x+y=2", "2x+2y=4"), ("3+2=5", "5"), ("m+n = 256+37 = 293", "293"), ("f(2)=5", "5"),
        (r"5x - 7y + 11z + 4 = 0", "-5x+7y-11z-4=0"), ("x<5", "5>x"), (r"\text{Area} = 12", "12"), ("x = 1/3 ≈ 0.333", "1/3"), ("y=-2x", "y = -2x"),
        (r"\pi \approx 3.14", r"\pi"), ("≈ 3.14", "3.14"), ("P(A) = 1/2", "0.5"), (r"\angle ABC = 30^\circ", "30"), ("2>x", "x<2"), ("5 = AB", "AB=5"), (r"3 \le x", r"x \ge 3"), ("x = 10/2", "x=5"), ("2y=4x+2", "y=2x+1"), ("2x-y+1=0", "y=2x+1"), ("4x^2+4y^2=36", "x^2+y^2=9"), (r"x \ne 3", r"3 \ne x"), ("AB=5", "5"),
        (r"y=2\log x", r"2y = 4\log x"),
    ],
    "units": [
        (r"5\text{ cm}", "5"), ("5", r"5 \mbox{ cm}^2"), ("5 cm", "5 centimeters"), (r"15\text{ cm}^2", r"15\mbox{ cm}^2"), ("90", r"90^\circ"),
        ("90 degrees", r"90^\circ"), ("90°", "90"), (r"\$18.90", "18.90"), ("$5", "5"), ("18.9 dollars", r"\$18.90"), ("5.4", r"5.4 \text{ cents}"),
        (r"864\text{ square inches}", r"864 \mbox{ inches}^2"), ("12 apples", "12"), ("€5", "5 euros"), ("5 miles per hour", "5"), ("5 mph", "5"),
        (r"\frac{270}{7}^\circ", r"\frac{270}7\text{ degrees}"), ("5 m", "5"), ("10 km/h", "10"), ("3 hours", "3"), (r"12\,\mathrm{cm}", "12"),
    ],
    "percent": [
        (r"50\%", "50"), ("50", r"50\%"), ("50%", "0.5"), ("0.5", "50%"), (r"\frac12", r"50\%"), ("28 percent", r"28\%"), ("28", r"$28\%$"),
        ("12.5%", "12.5"), ("100%", "1"), ("50 \\%", "50%"), (r"33\frac13\%", r"\frac13"),
    ],
    "bases": [
        ("204_5", "204_5"), ("204_{5}", "204_5"), (r"204_{\text{five}}", "204_5"), ("2516_8", "2516_8"), ("2A_{16}", "2A_{16}"),
        ("11111111100_2", r"11111111100_{2}"), ("204₅", "204_5"), (r"(204)_5", "204_5"),
    ],
    "words": [
        (r"\text{Evelyn}", "Evelyn"), ("Evelyn", r"\text{Evelyn}"), ("evelyn", r"\text{Evelyn}"), ("(C)", r"\text{(C)}"), ("C", r"\text{(C)}"),
        (r"\text{C}", "(C)"), (r"\textbf{(C)}", "C"), (r"\text{(C)}\ 12", "C"), ("(C) 12", "12"), ("Tuesday", "tuesday"), (r"\text{ellipse}", "ellipse"),
        (r"\text{even}", "Even"), ("B.", "B"), ("C) 12", r"\text{(C)}"), ("12:00", "12:00"), ("1:2", "1:2"), ("True", "true"), (r"\mathrm{A}", "A"),
    ],
    "more forms": [
        (r"5 \, \text{m}^2", "5"), (r"f^{-1}(x) = \frac{x-1}{2}", r"\frac{x-1}{2}"), (r"\mathbb{R} \setminus \{2\}", r"(-\infty,2)\cup(2,\infty)"), ("x=1, y=2", "(1,2)"), ("sinx", r"\sin x"),
        (r"{90^\circ}", r"90^\circ"), (r"\frac{180^\circ}{2}", r"90^\circ"), (r"A = (0,9) \cup (9,36)", r"(0,9) \cup (9,36)"), (r"{\{1\pm\sqrt5\}}", r"1\pm\sqrt5"), (r"x = 1 \pm \sqrt{2}", r"1 \pm \sqrt{2}"),
        ("1000,99", "1000.99"), ("0,111", "0.111"), ("2,74", "2.74"), ("1>x", "x<1"), (r"\frac{x^2}{16}+\frac{y^2}{12}=\frac14", r"\frac{x^2}{4}+\frac{y^2}{3}=1"), (r"-2 \le x \le 7", r"x \in [-2,7]"),
        ("1.5 million", "1500000"), ("2 dozen", "24"), (r"3\text{ thousand dollars}", "3000"), ("5 = x", "5"), (r"\{1,1,2\}", r"\{1,2\}"), (r"\begin{cases} x=1 \\ y=2 \end{cases}", "x=1, y=2"), ("1 000 000", "1000000"),
        (r"\{x \mid x > 3\}", r"(3,\infty)"), (r"x \ne 2", r"(-\infty,2)\cup(2,\infty)"), ("54_{10}", "54"), (r"\lg 2", r"\log_{10} 2"), (r"\mathbb{R} \setminus \{3, 1\}", r"(-\infty,1)\cup(1,3)\cup(3,\infty)"),
    ],
    "matrices": [
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"), (r"[[1,2],[3,4]]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}", r"\begin{pmatrix} -\frac13 \\ \frac23 \\ \frac{5}{3} \end{pmatrix}"),
        (r"\begin{pmatrix} \sqrt{4} \\ 1 \end{pmatrix}", r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}"),
    ],
    "beyond our grammar": [
        (r"\sum_{k=1}^\infty \frac{1}{k^2}", r"\frac{\pi^2}{6}"), (r"\frac{\pi^2}{6}", r"\sum_{k=1}^\infty \frac{1}{k^2}"), (r"\lim_{n\to\infty}(1+1/n)^n", "e"), (r"\int_0^\pi \sin x\,dx", "2"),
        (r"\frac{\sqrt\pi}{2}", r"\int_0^\infty e^{-x^2}dx"), (r"\sum_{n=0}^{\infty} x^n", r"\sum_{k=0}^{\infty} x^k"), (r"\frac{\pi}{4}", r"\int_0^1 \frac{1}{1+x^2}dx"), (r"\int_0^1 \sqrt{1-x^2}dx", r"\frac\pi4"),
        (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"), (r"\sum_{k=1}^\infty \frac{1}{k^4}", r"\frac{\pi^4}{90}"), (r"\sum_{k=1}^\infty \frac{(-1)^{k+1}}{k}", r"\ln 2"), (r"\int_{-\infty}^\infty \frac{1}{1+x^2}dx", r"\pi"),
        (r"\sum_{k=1}^{10} k", "55"), (r"\int_0^1 x dx", r"\frac12"), (r"\prod_{k=1}^{5} k", "120"), (r"\gcd(12,18)", "6"), (r"\max(1,2)", "2"),
        (r"\lim_{x\to 0} \frac{\sin x}{x}", "1"), (r"\sum_{k=1}^{\infty} \frac{1}{2^k}", "1"),
    ],
    "labels, products of units and repeated values": [
        ("(E) not enough information", "E"), ("(C) -5", "C"), (r"\textbf{(C)}\ -5", "-5"), (r"5\text{ N·m}", r"5\text{ Nm}"), (r"5\,N\,m", r"5\text{ Nm}"), (r"5\text{ N m}", r"5\text{ Nm}"), (r"5\text{ N}\cdot\text{m}", r"5\text{ Nm}"),
        (r"5\text{ mA h}", r"5\text{ mAh}"), (r"5\text{ Ah}", r"5\text{ A h}"), (r"5\text{ Ns}", r"5\text{ N s}"), ("1", r"\{1,1\}"), (r"1\frac12\text{ or }\frac32", "1.5"), ("1", r"\{1\}"),
    ],
}  # fmt: skip

UNEQUAL = {
    "numbers": [
        ("71", "72"), ("72.1", "72"), ("-72", "72"), ("7 2", "72"), ("0.333", "1/3"), ("0.333333333", r"\frac13"), ("1/3", "0.33"), ("3.14", r"\pi"),
        ("3.14159265358979", r"\pi"), (r"\frac{22}{7}", r"\pi"), ("1.414", r"\sqrt2"), ("1.41421356237309504880168872420969807857", r"\sqrt{2}"),
        ("0.1428571", "1/7"), ("2.718", "e"), ("0.5000001", "0.5"), ("5.0", "5.01"), ("12345678901234567891", "12345678901234567890"),
        ("0.30000000000000004", "0.3"), ("9007199254740993", "9007199254740992"), ("1e-20", "0"), ("11/2", "1 1/2"), (r"\frac{12}{3}", r"\frac{1}{23}"),
        ("x^{1}2", "x^{12}"), ("0.999", "1"), ("1/2", "2"), (r"\frac{2}{1}", r"\frac{1}{2}"), ("1,234", "1.234"), ("4.5", "5"), ("99.99", "100"),
    ],
    "tiny and huge": [
        (r"\frac{1}{2006!}", r"\frac{1}{2004!}"), ("2^{-98}", "2^{-99}"), (r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}"), ("e^{-1000}", "e^{-1001}"),
        (r"\frac{1}{3 \cdot 2^{2006}}", r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}"), (r"\sqrt{10^{200}+1}", "10^{100}"), ("10^{-50}", "0"),
        (r"\sqrt2 \cdot 10^{-400}", r"\sqrt3 \cdot 10^{-400}"), ("2^{1000}+1", "2^{1000}"), ("1000!", "1001!"), ("10^{-300}", "2 \\cdot 10^{-300}"),
        (r"1 + 10^{-60}\sqrt2", "1"), (r"\pi + 10^{-70}", r"\pi"), ("e^{-500}", "0"), (r"\frac{1}{10^{40}}x", "0"),
    ],
    "bases": [
        ("204_6", "204_5"), ("204", "204_5"), ("204_5", "204"), ("54", "204_5"), ("54_{10}", "204_5"), ("205_5", "204_5"), ("1010_2", "10"), ("2516_7", "2516_8"),
    ],
    "percent": [
        ("0.5", "50"), ("50", "0.5"), ("0.5%", "0.5"), ("5%", "0.5"), ("0.5", "0.5%"), ("1%", "1"), ("51%", "50"), ("0.28", "28"), ("9", "0.09"),
    ],
    "relations": [
        ("x>5", "5"), ("5", "x>5"), ("x<5", "x>5"), (r"x \le 5", "x<5"), ("x>5", "x=5"), ("5<x<7", "5"), ("5<x<7", "(5,8)"), ("5<x<7", "[5,7]"), ("x=6", "x=5"),
        ("4=5", "5"), ("2x=10", "5"), ("x^2=25", "5"), ("n=1, 2, 3", "n=2, 3, 4"), ("D = (0, 1.5)", "D = (0, 1)"), ("y=5", "x=5"), ("3x-y+13=0", "3x+4y+14=0"),
        ("x<5", r"(-\infty,5]"), ("1 ≈ 2 ≈ 3 ≈ 5", "5"), ("x ≠ 5", "5"), ("x = x", "5"), ("0=0", "5"), ("x+1=2", "x+1=3"), ("2x=2x", "y=3x"), ("x=5 or x=6", "5"),
        ("x \\approx 5", "6"), (r"F_n = \sum_{k=0}^{n-2} F_k F_{n-k-2}", r"F_n = \sum_{k=0}^{n-1} F_k F_{n-k-1}"), ("y=2x-3", "y=2x+3"), ("f(x)=0", "f(x)=1"),
        (r"\log x = 0", "x+y=0"), ("3x+2=17", "x=5"), ("5x-3=2x+12", "x=5"), ("x+3=8", "x=5"), ("x-5=0", "x=5"), ("2x=10", "x=5"), ("2x+1>7", "x>3"), ("x-3>0", "x>3"), (r"-2x \le 6", r"x \ge -3"), ("2x<4", "x<2"), ("-x>-1", "x<1"),
        ("2AB=10", "AB=5"), (r"2\mu=6", r"\mu=3"), (r"2x \ne 6", r"x \ne 3"), ("5=y", "x=5"), ("3>x", "x>3"), (r"x \ge 3", "x>3"), ("x=5+x-x+1", "x=5"), (r"\log x^2 < a", "a<0"),
    ],
    "scientific": [
        (r"1.2\times10^3", "1.2"), ("1.2e3", "1.2"), ("1.2e-3", "1200"), (r"1.2\times10^2", "1200"), (r"6.72\times10^{-4}", ".0000672"), ("10^5", "10^6"),
        ("1.2", "1.2e3"), ("12e3", "1.2e3"), ("5e", "5"), (r"1.23\times 10^{3}", "1.2e3"), ("1e400", "1e401"),
    ],
    "sets, tuples, intervals": [
        ("(2,1)", "(1,2)"), ("[1,2]", "(1,2)"), ("(1,2]", "(1,2)"), ("[1,2)", "(1,2]"), (r"\{1,2\}", "(1,2)"), ("(1,2)", r"\{1,2\}"), ("1,2", "(1,2)"),
        ("(1,234)", "1234"), ("1,23", "123"), ("1,2,3", "1,2"), ("1,2", "1,2,3"), ("1", "1,2"), ("1,2", "1"), ("1,-3", "1,-2"), ("21, 36, and 82", r"19, 46, \text{ and } 82"),
        ("2021", r"\pm 2021"), (r"\pm 2", "2"), ("(0,1)", "[0,1]"), (r"(0,9)\cup(9,35)", r"(0,9)\cup(9,36)"), ("(0,36)", r"(0,9) \cup (9,36)"), (r"1\pm\sqrt{18}", r"1\pm\sqrt{19}"),
        (r"(-\infty,2)", r"(-\infty,2)\cup(3,\infty)"), ("1,3,5,...,2n-1", r"1,2,\ldots,n"), (r"1:4:9:\ldots", r"1:2:3:\ldots"), ("1:00", "12:00"), (r"(3, \frac{2\pi}{3})", r"(3,\frac\pi2)"),
        (r"\{1,2,3\}", r"\{1,2\}"), (r"\emptyset", "0"), ("0", r"\emptyset"), (r"\infty", r"-\infty"), ("(1,2,3)", "(1,2)"), ("5 or 6", "5"), ("5 or 6", "6"), ("{5,6}", "5"), ("(5)", "(5,6)"),
    ],
    "constants and functions": [
        (r"1 + \frac{1}{e}", r"1 - \frac{1}{e}"), (r"\sqrt{x^2}", "x"), (r"|x|", "x"), (r"\sin x", r"\cos x"), (r"\ln 2", r"\log_2 e"), ("x", "y"), ("x", "5"), ("2x", "2"), (r"4\sqrt(2)", "4"),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5}"), ("(x+1)^2", "x^2+1"), ("a+b", "ab"), (r"\pi", "3"), ("e", "2.718281828459045"), ("i", "1"), ("-i", "i"), ("6+5i", "6-5i"), (r"\sqrt{13}", "13"), ("3!", "3"),
        ("f(x)", "g(x)"), ("f(1)", "f(2)"), (r"x^2", "x^3"), (r"\frac{\pi}{6}", r"-\frac{\pi}{6}"), (r"2^{1/3}", "1.26"), (r"\sin 30", r"\frac12"),
        ("|xy|", "xy"), (r"\sqrt{x^2y^2}", "xy"), (r"\frac{|x|}{x}\frac{|y|}{y}", "1"), ("|a^2-b^2|", "b^2-a^2"), ("|x-100|", "100-x"), (r"\sqrt{(x+50)^2}", "x+50"), (r"\lfloor x^2/1000\rfloor", "0"), (r"\lceil x\rceil", r"\lfloor x\rfloor+1"),
        ("|x-y||y-z|", "(x-y)(y-z)"), (r"\tanh(100)", "1"), (r"\lfloor\tanh(200)\rfloor", "1"), (r"\frac{\sin\pi}{\sin\pi}", "1"), (r"\tan\frac{\pi}{2}", "0"), (r"\int_0^\pi \sin x\,dx", "1"), (r"\sum_{k=1}^\infty \frac{1}{k^2}", r"\frac{\pi^2}{8}"),
        ("0.(3)", "0"), ("1.(6)", "6"), ("2.(5)", "10"), ("0.(3)", "0.3"), (r"0.\dot{3}", "0.3"), ("3.14...", r"\pi"), (r"1.4142\ldots", r"\sqrt2"), (r"\sum_{k=1}^\infty \frac{1}{k^2}", "1.6449340668482264"),
    ],
    "units": [
        ("5 cm", "5 m"), (r"5\text{ cm}^2", r"5\text{ cm}^3"), ("5 dollars", "5 cents"), ("$5", "5 euros"), ("6 cm", "5 cm"), ("12:00 am", "12:00 pm"), ("5 feet", "5 inches"),
    ],
    "words": [
        (r"\text{Eve}", r"\text{Evelyn}"), ("(A)", "(B)"), ("A", "B"), ("A, B, C, D", "B"), ("not Evelyn", "Evelyn"), ("Evelyn or Navin", "Evelyn"), ("12", "Evelyn"), ("Evelyn", "12"), ("(B) 12", "(C)"),
        ("odd", "even"), ("nan", "5"), ("oo", "5"), ("NaN", r"\infty"), ("answer", "5"), ("the answer", "5"), ("all integers from 1 to 1000", "5"), ("any number", "5"),
        ("yes", "no"), ("undefined", "0"), ("ABC", "B"), (r"\text{five}", "6"),
    ],
    "matrices": [
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 5 \end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"), (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "1"), ("(1,2)", r"\begin{pmatrix} 1 & 2 \\ 1 & 2 \end{pmatrix}"),
    ],
    "words that change the number": [
        ("1.5 million", "1.5"), ("5 squared", "5"), ("5 factorial", "5"), ("5 less than", "5"), ("5 dozen", "5"), ("5 halves", "5"), ("5 plus 3", "5"), ("minus 5", "5"),
        ("5 or more", "5"), (r"\frac101", "1"), (r"\{\frac10, 2\}", "2"), (r"\{1, \frac10\}", r"\{1,2\}"), (r"2\infty, x+2y=4", "x=5"), (r"\frac10 \approx 5", "5"), ("1", "x+y=1"), ("0", "a+b=0"), ("1,2", "1.2"), ("1,5", "1.5"), ("11a+c", "7 = 11a+c"), ("1,2,3,...", "1,2,3"), ("(+5)(b+2)", "(a+5)(b+2)"), ("1", r"1\sqrt{19}"), ("at least 5", "5"), ("5 (mod 7)", "6"), ("x=2, y=1", "(1,2)"), ("y=1, x=2", "(1,2)"), (r"\{1,1,1\}", r"\{1,2\}"), ("5 to 6", "5"), ("5-6", "5"), ("5--6", "5"), ("5 thousand", "5"),
    ],
    "undefined": [(r"\frac{1}{0}", "5"), (r"\frac{5}{0}", "5"), ("0/0", "0"), ("0^{-1}", "0"), (r"\log 0", "0"), (r"\frac{0}{0}", "1"), (r"\infty - \infty", "0"), (r"\frac{\infty}{\infty}", "1")],
    "towers and factorials": [
        ("9^{9^{9^{9}}}", "5"), ("9^9^9^9", "5"), ("9^9^9^9^9^9", r"\pi"), ("100000!!", "5"), ("99999!", "5"), ("((((((9!)!)!)!)!)!)!", "5"), ("10^{10^{10}}", "10"), ("9**9**9**9", "5"),
        ("2^{2^{2^{2^{2^{2}}}}}", "65536"), ("-9^{9^{9^9}}", "-5"), ("9999999999!", "1"), ("(10^{100})!", "0"), ("5^{9^{9^9}}", "x+1"),
        ("9^{9^{9^9}}+1", "5"), ("1-9^{9^{9^9}}", "5"), ("1/9^{9^{9^9}}", "5"), ("|9^{9^{9^9}}|", "5"), (r"\sqrt{9^{9^{9^9}}}", "5"), (r"\ln(9^{9^{9^9}})", "5"), (r"\lfloor 9^{9^{9^9}}\rfloor", "5"), (r"\pi^{\pi^{\pi^\pi}}", "5"),
        ("x^{9^{9^9}}", "x+1"), ("x=9^{9^{9^9}}-1", "5"), ("x=9^{9^{9^9}}-1", "x=5"), ("y=9^{9^{9^9}}x", "y=2x+1"), (r"\{9^{9^{9^9}}+1\}", r"\{1\}"), ("(9^{9^{9^9}}+1, 2)", "(1,2)"), ("(1, 9^{9^{9^9}}+1)", "(1,2)"), ("9^{9^{9^9}}+1", r"\sqrt2"),
        (r"\sin(10^{10^{14}})", "1"), (r"\tan(9^{9^8})", "1"), (r"\cos(2^{100000000})", "1"), (r"\exp(10^{10^{10}})", "1"), (r"9^{-9^{9^9}}+1", "1"), ("9^{9^{9^9}}+1", r"\sum_{k=1}^{3} k"), ("x>9^{9^{9^9}}+1", "x>3"),
    ],
    "code": [
        ("__import__('os').system('touch PWNED')", "5"), ("exec(\"open('PWNED','w')\")", "5"), ("().__class__.__bases__[0].__subclasses__()", "5"), ("lambda: 5", "5"), ("5 if True else 0", "5"),
        ("[5 for x in range(10)]", "5"), ("open('/etc/passwd').read()", "5"), (r"\text{__import__('os')}", "5"), ("eval('5')", "5"), ("int('5')", "5"), ("5; import os", "5"), ("print(5)", "5"),
        (r"\operatorname{__import__('os').system('touch PWNED')}", "5"), ("S('5')", "5"), ("\\write18{touch PWNED}", "5"), ("\\input{/etc/passwd}", "5"), ("Symbol('x').__class__", "x"),
    ],
    "labels, products of units and repeated values": [
        ("(C) not", "(C)"), (r"(C)\neq 5", "(C)"), ("(C)+1", "(C)"), ("(C)+1", "1"), (r"(C)\text{ isn't it}", "C"), (r"(C)\cdot 2", "C"), ("(C)^2", "C"), (r"(C)\text{ is it}", "C"),
        (r"5\text{ nm}", r"5\text{ Nm}"), (r"5\text{ N·m}", r"5\text{ N}"), (r"5\text{ mAh}", r"5\text{ mA}"), ("1", "1,1"), ("2,3", "2,2,3"), (r"5\text{ in}^0", r"5\text{ in}^2"), (r"5\text{ cm}^0", r"5\text{ cm}"),
    ],
}  # fmt: skip

RESPONSES = [
    # several boxes
    (r"First \boxed{3}. No, wait: \boxed{4}", "4", "correct"), (r"First \boxed{3}. No, wait: \boxed{4}", "3", "incorrect"),
    (r"\boxed{3} or \boxed{4}", "3", "incorrect"), (r"$\boxed{1}$ and $\boxed{2}$", "1,2", "correct"), (r"$x=\boxed{1}$ or $x=\boxed{2}$", "2, 1", "correct"),
    (r"$\boxed{1}$ and $\boxed{3}$", "1,2", "incorrect"), (r"\boxed{\boxed{5}}", "5", "correct"), (r"\fbox{5}", "5", "correct"), (r"\boxed 5", "5", "correct"), (r"$\boxed{x=5}$", "5", "correct"),
    (r"\boxed{5} and so \boxed{}", "5", "no_answer"), (r"\boxed{}", "5", "no_answer"), (r"\boxed{ }", "5", "no_answer"), (r"\boxed{\text{}}", "5", "no_answer"), (r"\boxed{$$}", "5", "no_answer"),
    (r"\boxed{5} then \boxed{6", "5", "no_answer"), (r"so \boxed{5", "5", "no_answer"), (r"\boxed{\frac{1}{2}", "1/2", "no_answer"), (r"\boxed{1, 2, 3, 4, 5, 6, 7, 8, 9}", "5", "incorrect"),
    (r"\boxed{5}.", "5", "correct"), (r"**\boxed{5}**", "5", "correct"), (r"\[\boxed{5}\]", "5", "correct"), (r"\boxed{\left\{1,2\right\}}", "1,2", "correct"), (r"\boxed{a}\boxed{5}", "5", "no_answer"), (r"\boxed{a} \boxed{5}", "5", "correct"),
    (r"Put it in \boxed{}. The result: \boxed{5}", "5", "correct"), (r"\boxed{5\}", "5", "no_answer"),
    # think blocks
    (r"<think>\boxed{5}", "5", "no_answer"), (r"<think>it is 5</think>\boxed{6}", "6", "correct"), (r"<think>\boxed{5}</think>\boxed{6}", "5", "incorrect"), (r"<think>\boxed{5}</think>", "5", "no_answer"),
    (r"\boxed{5}</think>The answer is 6", "6", "correct"), (r"<think>a</think><think>\boxed{5}", "5", "no_answer"), (r"<THINK>\boxed{5}", "5", "no_answer"), ("<think>5</think>\n\nThe answer is 5.", "5", "correct"),
    (r"<thinking>\boxed{5}", "5", "no_answer"), (r"\boxed{5} <think> or 6", "5", "no_answer"),
    # markers
    ("#### 72", "72", "correct"), ("so 3+4\n#### 7", "7", "correct"), ("#### $1,234", "1234", "correct"), ("#### 72", "73", "incorrect"), ("The answer is 5.", "5", "correct"), ("The final answer is: $5$.", "5", "correct"),
    ("**Answer:** 5", "5", "correct"), ("Answer: 5 apples", "5", "correct"), ("The answer is not 5", "5", "no_answer"), ("The answer is 5 or 6.", "5", "incorrect"), ("The answer is 5 or 6.", "6", "incorrect"),
    ("Answer: m+n = 256+37 = 293", "293", "correct"), ("Answer: m+n = 256+37 = 293", "256", "incorrect"), ("Answer: 2*7 + 3*6 = 32", "2", "incorrect"), ("Final answer: 082", "82", "correct"),
    ("The answer is (C).", "C", "correct"), ("The answer is B", r"\text{(B)}", "correct"), ("The answer is B", r"\text{(C)}", "incorrect"), ("<answer>5</answer>", "5", "correct"), ("<answer> \\boxed{5} </answer>", "5", "correct"),
    ("The answer is $\\frac{1}{2}$.", "0.5", "correct"), ("Thus the answer is 3.14.", "3.14", "correct"), ("The answer is $x^2+1$.", "1+x^2", "correct"),
    ("✅ Final Answer: **73**", "73", "correct"), ("**Final Answer**\n\n5", "5", "correct"), ("The answer is 1,234.", "1234", "correct"), ("The answer is -5", "-5", "correct"),
    ("The answer is -5", "5", "incorrect"), ("The answer is: 50%", "50", "correct"),
    # the last number
    ("7 + 8 = 15", "15", "correct"), ("15", "15", "correct"), ("7 + 8 = 16", "15", "incorrect"), ("7 + 8", "8", "incorrect"),
    ("", "15", "no_answer"), ("   ", "15", "no_answer"), ("I do not know.", "15", "no_answer"), ("2^5", "5", "incorrect"), ("2^5", "32", "correct"), ("x > 5", "5", "incorrect"), ("1.2e3", "1200", "correct"), (r"$\sqrt{16}$", "4", "correct"), ("1, 2, 3, 14, 15", "15", "incorrect"), ("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "15", "incorrect"),
    ("14 or 15", "15", "incorrect"), ("10 - 5", "10", "incorrect"), ("It is not 5", "5", "no_answer"),
    ("7 × 8 = 56", "56", "correct"), ("step 15 =", "15", "incorrect"), ("x15", "15", "incorrect"), ("\n".join(map(str, range(1, 16))), "15", "no_answer"),
    (", ".join(map(str, range(100))), "99", "no_answer"), ("5", "x=5", "correct"), ("$x^2+1$", "x^2+1", "correct"),

    ("Answer $$ \n 9 \n $$", "9", "correct"),
    ("$2^{10}.$", "2", "incorrect"), ("The answer is $1/3.$", "1", "incorrect"), (r"$\frac{1}{3}.$", "1/3", "correct"), ("$(1,2).$", "(1,2)", "correct"),
    ("1,000.99$", "1000.99", "correct"), ("AZYUK2A", "2", "incorrect"), (r"is $\boxed{32, 349}$", "32349", "incorrect"),
    # golds
    (r"\boxed{72}", "some steps <<1+71=72>>\n#### 72", "correct"), (r"\boxed{2}", r"We find $\boxed{\frac{4}{2}}$.", "correct"), (r"\boxed{5}", "$5$", "correct"), (r"\boxed{1234}", "#### 1,234", "correct"), (r"\boxed{5}", "", "gold_invalid"),
    (r"\boxed{5}", "   ", "gold_invalid"), (r"\boxed{5}", "$$", "gold_invalid"), (r"\boxed{5}", r"\boxed{}", "gold_invalid"), (r"\boxed{5}", r"\frac{1}{0}", "gold_invalid"), (r"\boxed{5}", r"\frac{1}{", "gold_invalid"), (r"\boxed{5}", "####", "gold_invalid"),
    (r"\boxed{5}", "nan", "gold_invalid"), (r"\boxed{5}", "9" * 5000, "gold_invalid"), ("", "", "gold_invalid"), (r"\boxed{5}", r"\text{}", "gold_invalid"), (r"\boxed{5}", "...", "gold_invalid"), (r"\boxed{5}", r"\boxed{5", "gold_invalid"),
    (r"\boxed{9^{9^{9^9}}}", "9^{9^{9^9}}", "correct"), (r"\boxed{x}", "x", "correct"), (r"\boxed{1/0}", "1/0", "gold_invalid"),
    # size
    (r"\boxed{" + "(" * 300 + "5" + ")" * 300 + "}", "5", "incorrect"), (r"\boxed{" + "-" * 1500 + "5}", "5", "correct"), (r"\boxed{" + "9" * 5000 + "}", "5", "incorrect"), (r"\boxed{" + r"\frac{1}{" * 200 + "5" + "}" * 200 + "}", "5", "incorrect"),
    (r"\boxed{" + ",".join(map(str, range(1000))) + "}", "5", "incorrect"), (r"\boxed{" * 5000 + "5", "5", "no_answer"), ("<answer>" * 20000, "5", "no_answer"), ("$" * 100000, "5", "no_answer"), (r"\sqrt" * 400, "5", "no_answer"),
    (r"\boxed{" + "{" * 500 + "5" + "}" * 500 + "}", "5", "incorrect"), (r"\boxed{" + "5" + "!" * 50 + "}", "5", "incorrect"), (r"\boxed{" + "^2" * 500 + "}", "5", "incorrect"), (r"\boxed{" + "2^" * 300 + "2}", "5", "incorrect"),
]  # fmt: skip

POLICIES = [
    (r"\boxed{50\%}", "50", {"percent": "value"}, "incorrect"), (r"\boxed{50\%}", "0.5", {"percent": "value"}, "correct"), (r"\boxed{0.5}", r"50\%", {"percent": "required"}, "incorrect"), (r"\boxed{50\%}", r"50\%", {"percent": "required"}, "correct"),
    (r"\boxed{5}", "5 cm", {"units": "required"}, "incorrect"), (r"\boxed{5\text{ cm}}", "5 cm", {"units": "required"}, "correct"), (r"\boxed{5 m}", "5 cm", {"units": "ignore"}, "correct"),
    (r"\boxed{0.333}", "1/3", {"rounding": 3}, "correct"), (r"\boxed{0.334}", "1/3", {"rounding": 3}, "incorrect"), (r"\boxed{3.14}", r"\pi", {"rounding": 2}, "correct"), (r"\boxed{3.15}", r"\pi", {"rounding": 2}, "incorrect"),
    (r"\boxed{3.14}", r"\pi", {"rounding": 0.001}, "correct"), (r"\boxed{3.1}", r"\pi", {"rounding": 0.001}, "incorrect"), (r"\boxed{100.4}", "100", {"rounding": 0}, "correct"), (r"\boxed{\sqrt2}", "1.41", {"rounding": 2}, "correct"),
    (r"\boxed{\log 3}", "0.477", {"rounding": 3}, "correct"), (r"\boxed{\log 3}", "0.48", {"rounding": 3}, "incorrect"),
    (r"\boxed{2,1}", "1,2", {"order": "strict"}, "incorrect"), (r"\boxed{1,2}", "1,2", {"order": "strict"}, "correct"), (r"\boxed{(2,1)}", "(1,2)", {"order": "free"}, "correct"),
    (r"\boxed{3} or \boxed{4}", "3", {"box": "first"}, "no_answer"), (r"\boxed{3} and \boxed{4}", "3", {"box": "first"}, "correct"), (r"\boxed{3} or \boxed{4}", "4", {"box": "only"}, "incorrect"), (r"\boxed{4} or \boxed{4}", "4", {"box": "only"}, "correct"), (r"\boxed{3} x \boxed{4}", "3,4", {"box": "all"}, "correct"),
    (r"it is 5</think>\boxed{6}", "6", {"think": "open"}, "correct"), (r"\boxed{5}", "5", {"think": "open"}, "no_answer"), (r"<think>\boxed{5}", "5", {"think": "ignore"}, "correct"),
    ("It is 5", "5", {"fallback": "none"}, "no_answer"), ("It is 5", "5", {"fallback": "number"}, "correct"), ("So $x+5$", "x+5", {"fallback": "none"}, "no_answer"),
    (r"\boxed{7+8}", "15", {"form": "value"}, "incorrect"), (r"\boxed{15}", "15", {"form": "value"}, "correct"), (r"\boxed{7+8=15}", "15", {"form": "value"}, "correct"), (r"\boxed{3 \cdot 5}", "15", {"form": "value"}, "incorrect"),
    (r"\boxed{1\frac12}", "1.5", {"form": "value"}, "correct"), (r"\boxed{1.5e1}", "15", {"form": "value"}, "correct"), (r"\boxed{15 = 7+8}", "15", {"form": "value"}, "incorrect"),
    (r"\boxed{7/(1/8)}", "56", {"form": "value"}, "incorrect"), (r"\boxed{\frac{7}{\frac{1}{8}}}", "56", {"form": "value"}, "incorrect"), (r"\boxed{7*10^{\log_{10} 8}}", "56", {"form": "value"}, "incorrect"), (r"\boxed{1*10^{\log_{10}(7+8)}}", "15", {"form": "value"}, "incorrect"),
    (r"\boxed{7+0.5}", "7.5", {"form": "value"}, "incorrect"), (r"\boxed{7\frac12}", "7.5", {"form": "value"}, "correct"), (r"\boxed{-7 1/2}", "-7.5", {"form": "value"}, "correct"), (r"\boxed{\frac{-15}{2}}", "-7.5", {"form": "value"}, "correct"), (r"\boxed{1.5\times10^{1}}", "15", {"form": "value"}, "correct"),
    (r"\boxed{7*10^{9^{9^9}+1}}", "56", {"form": "value"}, "incorrect"), (r"\boxed{7*10^{-9^{9^9}}}", "56", {"form": "value"}, "incorrect"), (r"\boxed{7*10^{-999999999999999999}}", "56", {"form": "value"}, "incorrect"), (r"\boxed{0.(3)}", "1/3", {"form": "value"}, "correct"),
    (r"\boxed{3 \cdot 10^{1+1}}", "300", {"form": "value"}, "incorrect"), (r"\boxed{9^{9^{9^9}}+1}", "5", {"rounding": 2}, "incorrect"), (r"\boxed{-(-15)}", "15", {"form": "value"}, "incorrect"),
]  # fmt: skip
