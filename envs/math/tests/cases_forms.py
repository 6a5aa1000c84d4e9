r"""What `verify` must say of units and of the forms an answer can take. Rows are (boxed answer, gold)."""
# ruff: noqa: E501, RUF001  (tables are read by column; models write these signs)

EQUAL = {
    "units by name, symbol and prefix": [
        ("5 kHz", "5 kilohertz"), ("5 MHz", "5 megahertz"), (r"5\text{ kHz}", r"5\,\mathrm{kHz}"), ("5 kHz", "5"), ("5", "5 kHz"), ("5 kJ", "5 kilojoules"), ("3 GB", "3 gigabytes"), (r"4\ \mu m", "4 micrometers"), ("4 μm", r"4\,\mu\mathrm{m}"),
        ("4 microns", "4 μm"), ("7 kΩ", r"7\text{ kilohms}"), (r"7\,\Omega", "7 ohms"), ("9 mA", "9 milliamps"), ("12 kPa", "12 kilopascals"), ("2 nm", "2 nanometers"), ("6 MW", "6 megawatts"), ("6 mW", "6 milliwatts"), ("3 dL", "3 deciliters"),
        ("250 mg", "250 milligrams"), ("5 KM", "5 km"), ("5 Cm", "5 cm"), ("5 Kg", "5 kg"), ("5 KG", "5 kilograms"), ("5 hz", "5 Hz"), ("3 tonnes", "3 metric tons"), ("5 kcal", "5 kilocalories"), ("1.5 eV", "1.5 electronvolts"), ("3 mol", "3 moles"), ("10 dB", "10 decibels"),
        (r"5\text{ N}", "5 newtons"), (r"5\,\mathrm{V}", "5 volts"), (r"5~\text{J}", "5 joules"), ("5 atm", "5 atmospheres"), ("2 acres", "2 acre"), ("5 AUD", "5 AUD"), ("3 fl oz", "3 fluid ounces"), (r"10\text{ rpm}", "10 revolutions per minute"), ("40 minutes", r"40\text{ min}"),
    ],
    "compound units": [
        ("60 km/h", "60 kilometers per hour"), ("60 kph", "60 km/h"), ("60 km/hr", "60 kilometres per hour"), (r"60\ \frac{\text{km}}{\text{h}}", "60 km/h"), ("9.8 m/s^2", "9.8 meters per second squared"), (r"9.8\,\mathrm{m/s^2}", "9.8 m/s²"), (r"9.8\text{ m s}^{-2}", "9.8 m/s^2"),
        (r"9.8\,\mathrm{m\,s^{-2}}", r"9.8\text{ m/s}^2"), ("9.8 m/s/s", "9.8 m/s^2"), ("60 mph", "60 miles per hour"), ("60 mi/h", "60 mph"), ("3 g/cm^3", "3 grams per cubic centimeter"), (r"3\text{ g/cm}^3", "3 g/cm³"), ("5 kWh", "5 kilowatt hours"), ("5 kWh", "5 kilowatt-hours"), ("4 N m", r"4\text{ N}\cdot\text{m}"),
        ("30 mpg", "30 miles per gallon"), ("3 dollars per hour", r"\$3 per hour"), ("3 dollars/hour", r"\$3/hour"), ("7 people per square mile", "7 people per square mile"), ("15 ft/sec", "15 feet per second"), ("25 sq ft", "25 square feet"), ("25 ft²", "25 square feet"), ("25 ft2", "25 ft^2"), (r"25\text{ cm}^{2}", "25 square centimeters"), (r"8\,\mathrm{cm^3}", "8 cubic centimeters"),
        ("8 cc", "8 cubic centimeters"), ("25 feet squared", "25 square feet"), ("5 lb/in^2", "5 psi"),
    ],
    "units forgiven": [
        ("5", "5 km/h"), ("5 km/h", "5"), ("12 apples", "12"), ("12", "12 apples"), ("12 children", "12 people"), ("5 square units", "5 cm^2"), ("5 units", "5 cm"), ("5 dollars per ticket", "5 dollars"), ("20", r"20^\circ C"), ("20 degrees", r"20^\circ C"), (r"20^\circ", "20"), ("0.5", "50%"), ("5", r"5\text{ N}"),
    ],
    "temperatures": [
        ("20°C", "20 degrees Celsius"), ("20 ℃", r"20^\circ\text{C}"), (r"20^{\circ}\mathrm{C}", "20 °C"), ("68°F", "68 degrees Fahrenheit"), (r"68^\circ\text{ F}", "68 ℉"), ("293 kelvin", "293 kelvins"), ("-40°C", r"-40^\circ\text{C}"), ("20 degC", "20 °C"),
    ],
    "currencies": [
        ("€5", "5 EUR"), ("£5", "5 pounds"), ("£5", "5 GBP"), ("5 lbs", "5 pounds"), ("5€", "€5"), (r"5\,\text{€}", "5 euros"), (r"\pounds 5", "£5"), ("$1,234.50", "1234.5 dollars"), ("USD 5", "$5"), ("5 USD", "$5"), ("₹500", "Rs. 500"), ("¥500", "500 yen"), ("50 cents", "50¢"), (r"\$5.00", "5 dollars"), ("-$5", r"-\$5"), ("5 bucks", r"\$5"),
    ],
    "degrees, minutes, seconds": [
        ("45°30'", "45.5°"), ("45.5", "45°30'"), (r"45^\circ30'", r"45.5^\circ"), (r"45^\circ 30^\prime", "45°30′"), (r"45^{\circ}30^{\prime}36^{\prime\prime}", "45.51°"), ("45° 30′ 36″", "45.51"), ("45 degrees 30 minutes", "45.5 degrees"), ("45°30'", r"\frac{91}{2}^\circ"), ("-45°30'", "-45.5°"), ("12°15'", "12.25 degrees"),
        (r"12^\circ 15' 0''", "12.25°"), ("45°30'36\"", "45.51°"), ("0°30'", "0.5°"),
    ],
    "quantities in parts": [
        ("1 hour 30 minutes", "1.5 hours"), ("1 hour and 30 minutes", "1 h 30 min"), ("1 hr 30 min", "1 hour, 30 minutes"), ("2 min 30 s", "2.5 minutes"), ("5 feet 6 inches", "5.5 feet"), ("5 ft 6 in", "5 feet 6 inches"), ("8 lb 4 oz", "8.25 pounds"), ("3 dollars and 50 cents", r"\$3.50"), ("1 day 12 hours", "1.5 days"),
        (r"1\text{ hour }30\text{ minutes}", "1 hour 30 minutes"), ("2 hours, 15 minutes, and 36 seconds", "2.26 hours"),
    ],
    "thousands": [
        ("1'000'000", "1000000"), ("1’000’000", "1,000,000"), ("1_000_000", "1000000"), (r"1\_000\_000", "1000000"), ("1\u202f000\u202f000", "1000000"), ("1\u2009234", "1234"), ("1 234", "1234"), ("1\u00a0234\u00a0567", "1234567"), ("1,00,000", "100000"), ("12,34,567", "1234567"), ("1.000.000", "1000000"), ("1.234.567,89", "1234567.89"), ("1'234.5", "1234.5"), ("-1'000", "-1000"),
        ("1,234,567.89", "1234567.89"), (r"1\,000\,000", "1000000"), (r"1~000~000", "1000000"), (r"1{,}000{,}000", "1'000'000"), ("$1'000$", "1000"), ("₹1,00,000", "100000"), ("1000000", "1'000'000"), (r"\$1,000,000", "1000000"), (r"1\:000", "1000"), (r"1\;000\;000", "1000000"), ("12,34,567", "12, 34, 567"), ("1'000 m", "1000 m"),
    ],
    "rounded to ten digits and more": [
        ("0.0833333333333333", "1/12"), ("1/12", "0.0833333333333333"), (r"\frac{1}{12}", "0.08333333333333333"), ("0.08333333333", r"\frac{1}{12}"), ("0.3333333333", r"\frac13"), ("0.6666666667", "2/3"), ("-0.6666666667", "-2/3"), ("33.33333333", r"\frac{100}{3}"), ("0.142857142857", "1/7"), ("0.14285714286", "1/7"), ("16.6666666667", "50/3"), ("0.6666666666666666", "2/3"),
        ("0.66666666666666663", "2/3"), (r"x = 0.3333333333", "1/3"), ("(0.3333333333, 1)", r"\left(\frac13, 1\right)"), ("0.3333333333 cm", r"\frac13\text{ cm}"), ("8.333333333e-2", "1/12"), (r"8.333333333 \times 10^{-2}", "1/12"), (".3333333333", "1/3"), (r"1\frac{1}{3}", "1.333333333333"), ("33.33333333%", r"\frac13"), ("0.3333333333", r"0.\overline{3}"),
    ],
    "empty sets": [
        ("No solution", r"\emptyset"), (r"\emptyset", "No solution"), (r"\varnothing", r"\text{No solution}"), ("no solutions", "∅"), ("none", r"\emptyset"), ("None", r"\text{no solutions}"), ("there is no solution", "no solution"), (r"\text{There are no solutions.}", r"\varnothing"), ("the empty set", r"\emptyset"), ("empty set", r"\{\}"), (r"\text{no real solutions}", r"\emptyset"), ("no real solution", "no real solutions"),
        (r"x \in \emptyset", r"\emptyset"), ("{}", r"\emptyset"), (r"\{ \}", "no solution"), ("no solution exists", r"\emptyset"), (r"\text{No Solution}", "no solution"), (r"S = \emptyset", r"\varnothing"), ("does not have a solution", r"\text{no solution}"), ("null set", r"\emptyset"),
    ],
    "what does not exist": [
        ("DNE", "does not exist"), ("does not exist", "DNE"), (r"\text{DNE}", r"\text{does not exist}"), ("Does Not Exist", "dne"), ("doesn't exist", "DNE"), ("The limit does not exist.", "DNE"), (r"\text{the limit does not exist}", "does not exist"), ("D.N.E.", "DNE"), ("nonexistent", "DNE"), ("limit does not exist", "DNE"),
    ],
    "infinities and all reals": [
        ("infinitely many", "infinitely many solutions"), ("infinite solutions", r"\text{infinitely many}"), ("+∞", r"\infty"), ("-infinity", r"-\infty"), (r"\text{negative infinity}", r"-\infty"), ("infinity", r"\infty"), ("all real x", r"\mathbb{R}"), (r"x\in\mathbb{R}", r"(-\infty,\infty)"), ("(-oo, oo)", r"\mathbb{R}"), ("every real number", r"\mathbb{R}"), ("]-∞, ∞[", r"\mathbb{R}"), (r"\text{any real number}", r"\mathbb{R}"), (r"(-\infty, 0) \cup [0, \infty)", r"\mathbb{R}"),
    ],
    "intervals": [
        ("]1,2[", "(1,2)"), ("]1,2]", "(1,2]"), ("[1,2[", "[1,2)"), (r"]-\infty, 3[", r"(-\infty,3)"), (r"\left]1,2\right[", "(1,2)"), ("]1;2[", "(1,2)"), ("(1;2)", "(1,2)"), ("[1;2]", "[1,2]"), (r"[0,1[ \cup ]2,3]", r"[0,1)\cup(2,3]"), (r"]0,1[ \cup ]2,3[", r"(0,1)\cup(2,3)"), (r"x\in]1,2[", "(1,2)"), ("]1,2[", "1<x<2"), ("1<x<2", "]1,2["), (r"\{x : 1 < x < 2\}", "]1,2["), (r"\{x \in \mathbb{R} \mid x \ge 3\}", r"[3,\infty)"),
        (r"\{x \in \mathbb{R} : x > 3\}", "x>3"), (r"\{x \mid 1 \le x < 2\}", "[1,2["), ("x>1 and x<=2", "]1,2]"), (r"]-\infty,1[\cup]2,+\infty[", "x<1 or x>2"), ("[1,5;2,5]", "[1.5, 2.5]"), (r"\left[\frac12, \infty\right[", "x >= 1/2"), (r"\{x | x \neq 2\}", r"(-\infty,2)\cup(2,\infty)"), (r"2 > x > 1", "(1,2)"), (r"\mathopen]1,2\mathclose[", "(1,2)"), (r"\lbrack 1, 2 \rbrack", "[1,2]"),
        (r"]\sqrt{2}, \sqrt[3]{9}[", r"(\sqrt{2}, \sqrt[3]{9})"),
    ],
    "unions": [
        (r"[1,2]\cup[2,3]", "[1,3]"), ("[1,3]", r"[1,2]\cup[2,3]"), (r"\{1,3\}\cup\{2,4\}", r"\{1,2,3,4\}"), (r"\{1,2,3,4\}", r"\{1,3\}\cup\{2,4\}"), (r"(1,2)\cup\{2\}", "(1,2]"), (r"\{1\}\cup(1,2)", "[1,2)"), (r"(0,2)\cup(1,3)", "(0,3)"), (r"[3,4]\cup[1,2]", r"[1,2]\cup[3,4]"), (r"(-\infty,1]\cup[1,\infty)", r"\mathbb{R}"), (r"(-\infty,1)\cup(1,\infty)", r"x \ne 1"),
        (r"\{1\} \cup \{1,2\}", r"\{1,2\}"), (r"\{5\}\cup\emptyset", r"\{5\}"), (r"[1,3]\cap[2,4]", "[2,3]"), (r"(0,1)\cap(2,3)", r"\emptyset"), (r"\{1,2,3\}\cap\{2,3,4\}", r"\{2,3\}"), (r"[0,\sqrt2]\cup[1,2]", "[0,2]"), (r"[0,\pi]\cup[\pi,4]", "[0,4]"), ("[1,2]U[2,3]", "[1,3]"), (r"x\in[1,2]\cup[2,3]", "1<=x<=3"), (r"\mathbb{R}\setminus\{0\}", r"x<0 \text{ or } x>0"), (r"(-\infty, \infty)\setminus\{1\}", r"x\neq1"),
        (r"[1,3]\setminus\{2\}", r"[1,2)\cup(2,3]"), (r"\{1,2,3\}\setminus\{2\}", r"\{1,3\}"), (r"\{-1\} \cup \{1\}", r"\pm 1"), (r"\{1\}\cup\{2\}", "1, 2"), (r"\{x \mid x<1\}\cup\{x \mid x>2\}", r"(-\infty,1)\cup(2,\infty)"), (r"(0,1)\cup(1,2)\cup\{1\}", "(0,2)"),
    ],
    "vectors": [
        ("(1,-2)", r"\begin{pmatrix}1\\-2\end{pmatrix}"), (r"\begin{pmatrix}1\\-2\end{pmatrix}", "(1,-2)"), (r"\begin{bmatrix}1\\-2\end{bmatrix}", r"\langle 1,-2\rangle"), (r"\begin{pmatrix}1&-2\end{pmatrix}", "(1,-2)"), (r"\langle 1,2,3\rangle", r"\begin{pmatrix}1\\2\\3\end{pmatrix}"), ("<1,2,3>", "(1,2,3)"), ("[1,-2]", r"\begin{pmatrix}1\\-2\end{pmatrix}"), ("[1,2,3]", r"\begin{pmatrix}1\\2\\3\end{pmatrix}"), (r"\left(\begin{array}{c}1\\-2\end{array}\right)", "(1,-2)"), ("[[1],[-2]]", r"\begin{pmatrix}1\\-2\end{pmatrix}"), ("(1,-2)^T", r"\begin{pmatrix}1\\-2\end{pmatrix}"),
        (r"(1,-2)^{\top}", r"\begin{pmatrix}1\\-2\end{pmatrix}"), (r"\mathbf{i}-2\mathbf{j}", "(1,-2)"), (r"3\hat{i}+4\hat{j}-\hat{k}", "(3,4,-1)"), ("(3,4,-1)", r"3\mathbf{i}+4\mathbf{j}-\mathbf{k}"), (r"\hat{\imath}+2\hat{\jmath}", r"\begin{pmatrix}1\\2\end{pmatrix}"), ("3i-2j", r"\langle 3,-2 \rangle"), (r"\vec{v} = (1,2)", r"\begin{pmatrix}1\\2\end{pmatrix}"), (r"\mathbf{v}=\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"),
    ],
    "plus and minus": [
        (r"\pm3\pm1", "4,2,-2,-4"), ("±3±1", r"\{4,2,-2,-4\}"), (r"\pm 3 \mp 1", "2,-2"), (r"3 \pm 1", "4, 2"), (r"\pm\sqrt{2}\pm i", r"\sqrt2+i, \sqrt2-i, -\sqrt2+i, -\sqrt2-i"), (r"(\pm 1, \pm 2)", "(1,2),(1,-2),(-1,2),(-1,-2)"), (r"(\pm 3, \mp 2)", "(3,-2),(-3,2)"), (r"(3, \pm 2)", "(3,2), (3,-2)"), (r"x = -1 \pm 2", "1, -3"), (r"\frac{-1\pm\sqrt{5}}{2}", r"\frac{-1+\sqrt5}{2}, \frac{-1-\sqrt5}{2}"), (r"\pm 1, \pm 2", "1,-1,2,-2"),
        (r"\{\pm 1, \pm 2\}", "-2,-1,1,2"), (r"\pm i", "i, -i"), (r"x=\pm\frac{1}{2}", r"\frac12, -\frac12"), (r"0, \pm 3", "-3,0,3"), ("3 +/- 1", "2, 4"), (r"2\pm3i", "2+3i, 2-3i"), (r"\pm(1+i)", "1+i, -1-i"),
    ],
    "ratios": [("1:2", "1 : 2"), ("1 to 2", "1:2"), ("2:4", "1:2"), ("1/2", "1:2"), ("1:2", r"\frac12"), (r"\frac{2}{3}", "2:3"), ("1:2:3", "2:4:6"), (r"\sqrt{2}:1", r"2:\sqrt{2}"), ("3 to 4", "3:4"), (r"3\text{ to }4", "3:4")],
    "mixed numbers, percentages, scientific": [
        (r"-2\frac{1}{3}", "-7/3"), ("3 1/2", "7/2"), (r"3\,\frac{1}{2}", "3.5"), ("3½", "3.5"), (r"3\tfrac12", "3.5"), ("12.5 percent", r"12\frac12\%"), (r"12\frac{1}{2}\%", "0.125"), ("5‰", "0.005"), ("1.2e+3", "1200"), ("1.2 × 10^3", "1200"), (r"1.2\cdot10^{-3}", "0.0012"), (r"6.02 \times 10^{23}", "6.02e23"), ("1.2*10**3", "1200"), ("1.2E3", "1,200"), (r"10^{-3}", "0.001"), (r"-1.5\times 10^{-2}", "-0.015"),
        ("3-4i", "-4i+3"), ("i+1", "1+i"), (r"3-4\mathrm{i}", "3-4i"), (r"\frac{1}{2}+\frac{\sqrt{3}}{2}i", r"\frac{1+i\sqrt3}{2}"),
    ],
    "sums that are evaluated": [("x+y=2+3=5", "5"), ("AB=5", "5"), (r"\angle A + \angle B = 40+50 = 90", "90"), ("f(2)=5", "5"), (r"P(X=2)=\frac14", "0.25"), ("|AB| = 5", "5")],
    "as models write them": [
        ("3.5 kilograms", "3.5 kg"), ("12 sq. in.", "12 in^2"), ("12 in²", "12 square inches"), (r"12\ \text{in}^2", "12 square inches"), ("4.2 × 10^3 J", "4.2e3 J"), ("4.2 × 10^3 J", "4200 J"), ("$12.50", "12.5"),
        ("12.50$", "12.5"), ("12.5 USD", "$12.50"), ("7 days", "7"), ("1 week", "1"), ("75 mph", "75 mi/hr"), ("0.75 L", "0.75 liters"), ("750 mL", "750 ml"), ("30 m/s", "30 m·s^{-1}"),
        (r"30\ \mathrm{m}\cdot\mathrm{s}^{-1}", "30 m/s"), (r"30\,\frac{\mathrm{m}}{\mathrm{s}}", "30 meters/second"), ("25 °C", "25°C"), (r"25\,^{\circ}\mathrm{C}", "25 °C"), (r"25^\circ \text{ Celsius}", "25°C"),
        ("98.6 °F", "98.6 degrees F"), ("300 K", r"300\text{ K}"), (r"300\,\mathrm{K}", "300 kelvin"), ("5 Ω", "5 ohms"), ("5 kg m/s", r"5\text{ kg}\cdot\text{m/s}"), ("5 kg·m/s", "5 kg m/s"),
        (r"10\,\mathrm{kg\cdot m/s^2}", "10 kg m/s^2"), ("2 hrs", "2 hours"), ("2h", "2 h"), ("15 min", "15 minutes"), (r"15\text{ minutes}", "15"), ("3 ft.", "3 feet"), ('6\'2"', "6 feet 2 inches"),
        ("3 thousand dollars", "$3000"), ("$3 million", "3000000"), ("€3.5 million", "3500000 euros"), ("12 dozen", "144"), ("2 pairs", "2"), ("3 cm × 4 cm", "3 cm × 4 cm"), ("10 %", "10%"), ("10 percent", "10%"),
        ("10 per cent", "10%"), ("0.1", r"10\%"), ("1/10", "10%"), (r"\frac{1}{10}", r"10\%"), ("66.67%", "66.67"), (r"66\frac23\%", "2/3"), ("[0, 5)", "0 ≤ x < 5"), ("0<=x<5", "[0,5)"), (r"x\in[0,5[", "[0,5)"),
        (r"\{x\in\mathbb{R}\mid 0\le x<5\}", "[0,5)"), (r"\{x: x\in\mathbb{R}, x\neq 0\}", r"(-\infty,0)\cup(0,\infty)"), (r"x \in (-\infty, 0) \cup (0, \infty)", r"\mathbb{R}\setminus\{0\}"),
        (r"\mathbb{R}\backslash\{0\}", r"x\ne0"), (r"x \neq 0", r"\mathbb{R} - \{0\}"), (r"(-\infty,-1)\cup(-1,1)\cup(1,\infty)", r"x\neq \pm 1"), (r"x \ne 1, -1", r"x\neq\pm1"),
        (r"x\ge2 \text{ or } x\le-2", r"(-\infty,-2]\cup[2,\infty)"), (r"|x|\ge2", r"|x| \geq 2"), ("x ≤ -2 or x ≥ 2", r"(-\infty, -2] \cup [2, \infty)"),
        (r"\left(-\infty,-2\right]\bigcup\left[2,\infty\right)", "x<=-2 or x>=2"), ("(1, 2) ∪ (3, 4)", "]1,2[ ∪ ]3,4["), ("{2}", "x=2"), ("x = 2 or x = 3", "{2,3}"), ("x ∈ {2, 3}", "{2, 3}"), ("x=2,3", "{3,2}"),
        ("2 and 3", "{2,3}"), (r"\{2\}\cup\{3\}", "x=2 or x=3"), ("{1,2,3}", "{3,2,1}"), (r"\left\{ 1, 2 \right\}", r"\{1,2\}"), ("{(1,2),(3,4)}", "(3,4),(1,2)"), ("(1,2) and (3,4)", "(3,4), (1,2)"),
        ("no solution.", "∅"), ("No real solutions", "no solution"), ("There is no solution", r"\varnothing"), ("Ø", r"\emptyset"), ("ø", r"\emptyset"), (r"\text{None}", r"\emptyset"),
        ("The solution set is empty", r"\emptyset"), (r"\{ \emptyset \}", r"\{\emptyset\}"), ("The system has no solution", "no solution"), ("No such x exists", "no solution"), (r"x\in\varnothing", "no solution"),
        ("no values", "none"), ("impossible", "impossible"), ("Undefined", "undefined"), ("does not exist", "The limit does not exist"), ("DNE", r"\text{does not exist}"), ("Does not exist.", "DNE"),
        ("(3,-1)", r"\begin{bmatrix}3\\-1\end{bmatrix}"), (r"\begin{pmatrix}3\\-1\end{pmatrix}", r"\begin{bmatrix}3\\-1\end{bmatrix}"), (r"\begin{pmatrix}3&-1\end{pmatrix}^T", r"\begin{pmatrix}3\\-1\end{pmatrix}"),
        (r"\langle 3, -1 \rangle", r"3\hat{i} - \hat{j}"), (r"3\vec{i}-\vec{j}", "(3,-1)"), (r"3\hat{\mathbf{i}}-\hat{\mathbf{j}}", "(3,-1)"), (r"\left[\begin{array}{r}3\\-1\end{array}\right]", "(3,-1)"),
        ("x=3, y=-1", r"\begin{pmatrix}3\\-1\end{pmatrix}"), ('45°30\'0"', "45.5°"), ("45° 30'", "45.5"), ("30°15'", "30.25°"), ("30 deg 15 min", "30.25 degrees"), ("22°30'", r"22\frac12^\circ"),
        (r"22.5^\circ", "22°30'"), ("1 000 000", "1'000'000"), ("10 000", "10000"), ("1,000,000.00", "1000000"), ("1 234.56", "1234.56"), ("12.345.678", "12345678"), ("-1 000", "-1000"), ("−1'000", "-1000"),
        ("$1,234$", "1234"), (r"1\,234.5", "1234.5"), ("1{,}234.5", "1234.5"), ("10^{6}", "1'000'000"), (r"1\ 000", "1000"), ("1 000", "1,000"), ("0.083333333333", "1/12"), ("0.083333333333333333333", "1/12"),
        ("0.5833333333", "7/12"), ("1.6666666667", "5/3"), ("0.1111111111", "1/9"), ("0.2857142857", "2/7"), ("-0.3333333333333333", "-1/3"), ("14.2857142857%", "1/7"), ("0.07692307692", "1/13"), ("1.5:1", "3:2"),
        ("3:2", "6:4"), ("3 : 2", "3:2"), ("3∶2", "3:2"), ("3/2", "3:2"), (r"\sqrt{3}:1", r"\sqrt3:1"), ("2:3:4", "2 : 3 : 4"), ("4 to 1", "4:1"), (r"2 \pm \sqrt{3}", r"2+\sqrt3, 2-\sqrt3"),
        ("x = 2 ± √3", r"2\pm\sqrt{3}"), (r"x=\frac{3\pm\sqrt{17}}{4}", r"\frac{3+\sqrt{17}}{4},\frac{3-\sqrt{17}}{4}"), ("±1", "1,-1"), ("1, -1", r"\pm1"),
        (r"\pm\frac{\sqrt2}{2}", r"\frac{\sqrt2}{2}, -\frac{\sqrt2}{2}"), (r"\{\pm1,\pm3\}", "-3,-1,1,3"), (r"(\pm1,0)", "(1,0),(-1,0)"), (r"\pm 1 \pm i", "1+i,1-i,-1+i,-1-i"),
        (r"y=\pm\frac34x", r"y=\frac34x, y=-\frac34x"), (r"y=\pm x", "y=x, y=-x"), ("2i", "2 i"), ("0+2i", "2i"), ("2 + 0i", "2"), (r"2\mathrm{i}", "2i"), (r"e^{\pi i/2}", "i"), (r"\sqrt{-1}", "i"), ("(1-i)^2", "-2i"),
        (r"\frac{1}{2}-\frac{\sqrt3}{2}i", r"\frac{1-\sqrt{3}i}{2}"), ("5∠30°", "5∠30°"), ("2 cis 60°", "2 cis 60°"), ("6.022e23", r"6.022\times10^{23}"), ("6.022*10^23", r"6.022 \cdot 10^{23}"), ("1e-9", "10^{-9}"),
        ("1.0E+2", "100"), ("2.5×10⁻³", "0.0025"), ("2.50 x 10^{-3}", "0.0025"), ("5E6", "5,000,000"), ("3.0 × 10^8 m/s", "3e8 m/s"), (r"3.0\times10^8\text{ m/s}", r"3\times 10^{8}\,\mathrm{m/s}"), ("-1 3/4", "-7/4"),
        (r"1\,\frac34", "7/4"), ("1¾", "1.75"), ("1-3/4", "1/4"), ("1 3/4 cups", "7/4"), ("2 1/2 hours", "2.5 hours"), (r"2\frac{1}{2}\text{ hours}", "2.5 hours"), ("(A)", "A"), ("A)", "A"), ("Option C", "C"),
        ("C: 5", "C"), ("[B]", "B"), ("B.", "(B)"), ("choice D", "(D)"), ("Answer: B", "B"), ("positive infinity", r"\infty"), ("Infinity", "∞"), ("+inf", r"\infty"), ("-∞", r"-\infty"), ("(−∞, ∞)", "all real numbers"),
        ("all reals", r"\mathbb{R}"), ("ℝ", "all real numbers"), ("13:05", "13:05"), ("1:05 PM", "1:05 p.m."), ("1:05 PM", "1:05 pm"), ("9 a.m.", "9 am"), ("9:00 AM", "9:00 a.m."), ("three", "three"),
        ("Monday", "monday"), ("x^2 + y^2 = 25", "x²+y²=25"), ("y = 3x + 2", "3x - y + 2 = 0"), ("f(x) = 3x+2", "3x+2"),
    ],
}  # fmt: skip

UNEQUAL = {
    "prefixes": [
        ("5 kHz", "5 Hz"), ("5 Hz", "5 kHz"), ("5 MHz", "5 kHz"), ("5 kHz", "5000 Hz"), ("5 kJ", "5 J"), ("5 kilojoules", "5 joules"), ("5 mW", "5 MW"), ("5 milliwatts", "5 megawatts"), ("5 kW", "5 watts"), ("5 GB", "5 MB"), ("5 KB", "5 MB"), ("5 bits", "5 bytes"), ("5 mm", "5 cm"), ("5 μm", "5 mm"), ("5 nm", "5 μm"), ("5 mg", "5 g"), ("5 kg", "5 g"), ("5 ml", "5 l"), ("5 dL", "5 mL"), ("5 ms", "5 s"), (r"5\text{ kΩ}", r"5\,\Omega"), ("5 mA", "5 A"), ("5 kPa", "5 Pa"), ("5 MPa", "5 kPa"), ("5 kcal", "5 cal"), ("5 kN", "5 N"), (r"5\text{ kN}", r"5\text{ N}"),
        ("5 kV", r"5\text{ V}"), ("5 megahertz", "5 hertz"), ("5 nanoseconds", "5 microseconds"), ("5 centimeters", "5 kilometers"),
    ],
    "other units": [
        ("5%", "5 cm"), ("5 cm", "5%"), ("50%", "50 cm"), (r"5\%", r"5^\circ"), ("5 degrees", "5%"), ("20°C", "20°F"), (r"20^\circ C", r"20^\circ F"), ("20 degrees Celsius", "20 degrees Fahrenheit"), ("20 kelvin", "20°C"), ("5 cm", "5 cm^2"), ("5 square cm", "5 cubic cm"), ("5 cm^3", "5 cm^2"), ("60 km/h", "60 m/s"), ("60 km/h", "60 mph"), ("60 km/h", "60 km"), ("60 miles per hour", "60 miles per gallon"), ("60 km", "60 hours"), ("9.8 m/s", "9.8 m/s^2"), ("3 g/cm^3", "3 kg/m^3"),
        ("5 apples per day", "5 apples per hour"), ("5 dollars per hour", "5 dollars per day"), ("5 kWh", "5 kW"), ("5 N m", "5 N"), ("5 lb", "5 kg"), ("5 oz", "5 fl oz"), ("5 gallons", "5 liters"), ("5 feet", "5 meters"), ("5 yards", "5 feet"), ("5 minutes", "5 hours"), ("5 minutes", "5 seconds"), ("5 weeks", "5 months"), ("5 years", "5 days"), ("5 radians", "5 degrees"), ("5 rad", r"5^\circ"), ("5 joules", "5 newtons"), ("5 volts", "5 amps"), ("5 ohms", "5 watts"), ("5 cubic units", "5 cm^2"), ("5 acres", "5 hectares"), ("5 km", "5 miles"),
        ("5 m", "5 miles"), ("5 per hour", "5 hours"), ("5 hours", "5 km/h"), ("x = 5 cm", "x = 5 m"), ("(5 cm, 2)", "(5 m, 2)"), ("3 cm, 4 cm", "3 m, 4 m"), (r"41\text{ min}", r"40\text{ min}"), (r"40\text{ cm}", r"40\text{ min}"), (r"5\text{ V}", r"5\text{ N}"), ("1000 m", "1 km"), ("60 minutes", "1 hour"),
    ],
    "currencies": [("$5", "£5"), ("€5", "£5"), ("$5", "¥5"), ("₹5", "$5"), ("5 lbs", "£5"), ("5 kg", "£5"), ("50¢", "$50"), ("5 pence", "£5"), ("$5", "5%"), ("$5", "5 cm"), ("5 EUR", "5 USD"), ("CA$5", "€5")],
    "parts": [
        ("45°30'", "45.3°"), ("45°30'", "45°"), ("45°30'", "4530"), ("45°30'", "45°31'"), ("45°30'", "30'"), ("45°30'36\"", "45.5°"), ("45°", "45'"), ("30'", "30°"), ("1 hour 30 minutes", "1.3 hours"), ("1 hour 30 minutes", "1 hour"), ("1 hour 30 minutes", "30 minutes"), ("1 hour 30 minutes", "1 hour 31 minutes"), ("5 feet 6 inches", "5.6 feet"), ("5 feet 6 inches", "5 feet"), ("3 dollars and 50 cents", "3 dollars"), ("1 hour 30 minutes", "1 minute 30 hours"), ("45°75'", "46.25°"),
    ],
    "thousands": [("1'000'000", "1000"), ("1'00", "100"), ("1,00,00", "10000"), ("1.000", "1000"), ("1'0000", "10000"), ("1_000", "1"), ("1 00", "100"), ("1,0000", "10000"), ("12,345,67", "1234567"), ("0'123", "123"), ("1 234 56", "123456"), ("1;000", "1000"), ("1.000.00", "100000"), ("1 000, 2", "10002"), ("1,00,000", "1"), ("1'000'000", "1'000'001")],
    "not rounded, or not to ten digits": [
        ("0.333333333", "1/3"), ("0.083333333", "1/12"), ("0.6666666666", "2/3"), ("0.3333333334", "1/3"), ("0.66666666666", "2/3"), ("0.30000000000000004", "0.3"), ("0.5000000000001", "1/2"), ("0.3333333333", "0.33333333333"), ("3.14159265358979", r"\pi"), ("1.4142135623731", r"\sqrt{2}"), ("3333333333", r"\frac{10000000000}{3}"), ("0.00000000003", r"\frac{1}{30000000000}"), ("0.0000000333", r"\frac{1}{30000000}"), ("0.1428571428", "1/7"), ("0.9999999999", "1"), ("1234567890.3", "1234567890.25"), ("0.08333333333x", r"\frac{x}{12}"), ("33.3333333%", "1/3"),
    ],
    "empty, absent, infinite": [
        (r"\emptyset", "0"), ("none", "0"), ("no solution", "no"), ("no", "no solution"), ("no solution", "DNE"), ("DNE", r"\emptyset"), ("exists", "does not exist"), ("does exist", "does not exist"), ("one solution", "no solution"), ("no solution", "5"), ("5", "no solution"), ("DNE", "0"), ("DNE", r"\infty"), (r"\infty", "DNE"), ("infinitely many", "no solution"), ("no solution", "infinitely many solutions"), ("not none", "none"), ("no solution or 5", "5"), ("no solution or 5", "no solution"), ("5, no solution", "5"), (r"\{0\}", r"\emptyset"), (r"\{\emptyset\}", "no solution"), ("infinitely many", r"5"),
        (r"\mathbb{Z}", r"\mathbb{R}"), ("all integers", r"\mathbb{R}"), (r"-\infty", r"\infty"), ("negative infinity", r"\infty"), ("all real numbers", r"\emptyset"), ("no solution", r"\mathbb{R}"), ("all real numbers except 2", r"\mathbb{R}"), ("no integer solutions", r"\mathbb{R}"), ("some solution", "no solution"),
    ],
    "intervals": [
        ("]1,2[", "[1,2]"), ("]1,2]", "[1,2)"), ("[1,2[", "(1,2]"), ("]1,3[", "(1,2)"), ("]1,2[", "1,2"), ("]1,2[", r"\{1,2\}"), ("1<x<2", "[1,2]"), (r"\{x \mid x > 3\}", r"[3,\infty)"), (r"\{x \in \mathbb{Z} \mid 1 \le x \le 3\}", "[1,3]"), (r"\{x \mid x>3\}", "3"), ("]1,2", "(1,2)"), ("1,2[", "(1,2)"), (r"[0,1[ \cup ]2,3]", r"[0,1]\cup[2,3]"), ("(1;2)", "[1;2]"), (r"]-\infty,1[\cup]2,\infty[", r"]-\infty,1]\cup[2,\infty["), ("[2,1]", "[1,2]"),
    ],
    "unions": [
        (r"[1,2]\cup[3,4]", "[1,4]"), (r"[1,2)\cup(2,3]", "[1,3]"), (r"(0,9)\cup(9,36)", "(0,36)"), (r"\{1,3\}\cup\{2\}", r"\{1,2,3,4\}"), (r"\{1,3\}\cup\{2,4\}", "[1,4]"), (r"(1,2)\cup\{3\}", "(1,3]"), (r"\{1\}\cup\{2\}", "1"), (r"\{5\}\cup\{6\}", "5"), (r"[1,3]\cap[2,4]", "[1,4]"), (r"[1,2]\cap[2,3]", r"\emptyset"), (r"(1,2)\cup(2,3)", r"(1,2)\cap(2,3)"), (r"\{1,2\}\cap\{2,3\}", r"\{1,2,3\}"), (r"(-\infty,1)\cup(1,\infty)", r"\mathbb{R}"), (r"[0,\sqrt2]\cup[\sqrt3,2]", "[0,2]"), (r"\mathbb{R}\setminus\{0\}", r"\mathbb{R}"), (r"\{1,2,3\}\setminus\{2\}", r"\{1,2\}"),
        (r"[a,b]\cup[b,c]", "[a,b]"), (r"[1,\infty)\cup(-\infty,0]", r"\mathbb{R}"), (r"[1,2]\cup 5", "[1,5]"), (r"\{1,2\}", "[1,2]"),
    ],
    "vectors": [
        ("(1,2)", r"\begin{pmatrix}1\\-2\end{pmatrix}"), ("(-2,1)", r"\begin{pmatrix}1\\-2\end{pmatrix}"), (r"\begin{pmatrix}1&-2\end{pmatrix}", r"\begin{pmatrix}1\\-2\end{pmatrix}"), ("(1,-2,0)", r"\begin{pmatrix}1\\-2\end{pmatrix}"), (r"\{1,-2\}", r"\begin{pmatrix}1\\-2\end{pmatrix}"), ("1,-2", r"\begin{pmatrix}1\\-2\end{pmatrix}"), (r"\mathbf{i}+2\mathbf{j}", "(1,-2)"), (r"\mathbf{i}-2\mathbf{k}", "(1,-2)"), ("i-2j", "(1,-2,3)"), ("1-2i", "(1,-2)"), ("-1", "(1,-2)"), ("(1,2,3,4)", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"), (r"\begin{pmatrix}1\\2\end{pmatrix}", "[1,2]"), (r"\begin{pmatrix}1\\2\end{pmatrix}", "3"),
    ],
    "plus and minus": [
        (r"\pm3\pm1", "4,-4"), (r"\pm3\pm1", "2,-2"), ("±3±1", "4,2"), (r"\pm3\mp1", "4,-4"), (r"(\pm1,\pm2)", "(1,2),(-1,-2)"), (r"(\pm 3, \mp 2)", "(3,2),(-3,-2)"), (r"\pm 5", "5"), ("5", r"\pm 5"), (r"3\pm1", "4"), (r"\pm\pm 2", "2"), (r"\pm 1, \pm 2", "1,2"), (r"\pm0.5", "0.5"), (r"x=\pm2", "x=2"), (r"100 \pm 5", "100"), (r"\pm 2, 3", "2,3"),
    ],
    "ratios": [("1:2", "2:1"), ("1:2", "3"), ("1:2", "1"), ("1:2", "2"), ("1:3", "1:2"), ("1:2:3", "1:2"), ("10:20", "5:10"), ("2:1", "2"), ("2:01", "2"), ("1 to 2", "2:1"), ("1 to 2", "1"), ("1:2", "1,2"), ("1:2", "(1,2)"), ("12:30", "12.5"), ("10:2", "5"), ("0:0", "1:2"), ("0:0", "1/2"), ("-05:00", "05:00"), ("-1:2", "1:2"), ("1:2", "-1:-2"), ("5:1", "5")],
    "labels": [("(A), 7", "(A)"), ("(A) or 7", r"\text{(A)}"), (r"\text{(A)}, 7", r"\text{(A)}"), (r"(A) \text{ or } 12", "(A) 12"), ("A; 7", "A")],
    "equations for values": [("x+y=5", "5"), ("5", "x+y=5"), ("a+b=5", "5"), ("m+n=293", "293"), ("x-y=5", "5"), ("2x=5", "5"), ("xy=5+x", "5"), ("5=x+y", "5"), ("x+y=5", "x=5"), ("x+y=6", "x+y=5"), ("x+2y=5", "5"), ("x^2=5", "5")],
    "complex, mixed, percent": [("3+4i", "3-4i"), ("3+4i", "7"), ("4i", "4"), ("-2\\frac13", "-5/3"), ("1 1/2", "11/2"), ("3 1/2", "3/2"), ("5‰", "5%"), ("5‰", "5"), ("0.5%", "5%"), ("150%", "15"), ("1.2e3", "1.2e-3"), (r"1.2\times10^{3}", "12000")],
    "as models write them": [
        ("3.5 kg", "3.5 g"), ("3.5 kg", "3.5 lb"), ("5 kHz", "5 GHz"), ("5 Hz", "5 rpm"), ("12 in^2", "12 in^3"), ("12 in²", "12 ft²"), ("12 in", "12 in²"), ("4.2 J", "4.2 kJ"), ("4.2 J", "4.2 W"), ("75 mph", "75 km/h"),
        ("75 mph", "75 m/s"), ("0.75 L", "0.75 mL"), ("30 m/s", "30 m/s²"), ("30 m/s", "30 s/m"), ("30 m/min", "30 m/s"), ("25 °C", "25 K"), ("25 °F", "25 °C"), ("25°F", "25 ℃"), ("300 K", "300°C"),
        ("300 K", r"300\,^\circ\text{C}"), ("5 ohms", "5 farads"), ("5 N", "5 J"), ("5 newtons", "5 pascals"), ("2 hours", "2 minutes"), ("2 hr", "2 min"), ("5 lb", "5 oz"), ("5 gal", "5 qt"), ("$5", "5¢"),
        ("5 cents", "5 dollars"), ("5 euros", "5 pounds"), ("5 yen", "5 dollars"), ("£10", "€10"), ("10 rupees", "10 dollars"), ("10%", "10 cm"), ("10%", "10 degrees"), ("10%", "10 dollars"), ("10 kg", "10%"),
        ("10°", "10%"), ("10%", "10°"), ("50%", "0.05"), ("5‰", "0.5"), ("10 percent", "10 per hour"), ("3 million", "3 billion"), ("3 million", "3"), ("$3 million", "$3"), ("5 m", "5 min"), ("5 ms", "5 m"),
        ("5 mm", "5 m"), ("5 Mm", "5 mm"), ("5 mPa", "5 MPa"), ("5 mg", "5 Mg"), ("5 Gb", "5 GB"), ("5 kB", "5 kb"), ("5 mA", "5 mV"), ("5 nF", "5 μF"), ("5 pF", "5 nF"), ("5 μs", "5 ms"), ("5 cm^-1", "5 cm"),
        ("5 m^2", "5 m"), ("5 square meters", "5 meters"), ("5 cubic feet", "5 square feet"), ("5 acres", "5 square miles"), ("5 people per day", "5 people per week"), ("60 beats per minute", "60 beats per hour"),
        ('6\'2"', "6.2 feet"), ("6 feet 2 inches", "6 inches 2 feet"), ("45°30'", "45.5'"), ("30°15'", "30.15°"), ("30°15'", "3015"), ("1 h 30 min", "1.5 min"), ("1 h 30 min", "130"), ("1:30", "1.5 hours"),
        ("[0,5)", "[0,5]"), ("0<x<5", "0≤x<5"), ("]0,5]", "[0,5)"), ("]0,5[", "[0,5]"), ("[0,5[", "]0,5["), ("]0,5[", "{0,5}"), (r"(-\infty,0)\cup(0,\infty)", r"\mathbb{R}"), (r"x\neq0", r"x\neq1"),
        (r"x\neq0", r"\mathbb{R}"), (r"x\ne\pm1", r"x\ne1"), ("x>2 or x<-2", "x>2"), ("x>2 and x<-2", "x>2 or x<-2"), ("-2<x<2", "x<-2 or x>2"), (r"[1,2]\cup[2,3]", "[1,2]"), (r"[1,2]\cup[2,3]", "[2,3]"),
        (r"[1,2]\cup[3,4]", "[1,2],[3,5]"), (r"[1,2]\cap[2,3]", "[1,3]"), ("{1,2}∪{3}", "{1,2}"), ("{1,2}∪{2,3}", "{2}"), ("{1,2}∩{2,3}", "{1,2,3}"), ("{1,3}∪{2,4}", "{1,2,3}"), ("{1,3}∪{2,4}", "(1,2,3,4)"),
        ("{1,2}∪{3,4}", "[1,4]"), ("(1,2)∪(3,4)", "(1,4)"), ("none", "one"), ("∅", "0"), ("∅", "{0}"), ("no solution", r"\infty"), ("DNE", "no"), ("does not exist", "exists"),
        ("infinitely many solutions", "one solution"), ("no solution", "infinitely many"), ("all real numbers", "no solution"), ("exactly one solution", "no solution"), ("two solutions", "no solution"),
        ("no real solutions but 2 complex", "no solution"), ("no solution unless x=2", "no solution"), ("none of the above", "none"), ("(3,-1)", r"\begin{bmatrix}-1\\3\end{bmatrix}"),
        ("(3,-1,0)", r"\begin{bmatrix}3\\-1\end{bmatrix}"), ("(3,-1)", r"\begin{bmatrix}3\\1\end{bmatrix}"), ("{3,-1}", r"\begin{bmatrix}3\\-1\end{bmatrix}"), ("3,-1", r"\begin{bmatrix}3\\-1\end{bmatrix}"),
        (r"3\hat i+\hat j", "(3,-1)"), ("3+(-1)i", "(3,-1)"), ("3-i", "(3,-1)"), ("3i-j", "3-i"), (r"\begin{bmatrix}3&-1\end{bmatrix}", r"\begin{bmatrix}3\\-1\end{bmatrix}"), ("3", "(3,-1)"), ("(3;-1)", "(-1;3)"),
        ("1'000", "1.000"), ("1'000'00", "100000"), ("1 0000", "10000"), ("1,2345", "12345"), ("1.234", "1234"), ("1.234,5", "1234"), ("12,34", "1234"), ("1_0", "10"), ("1 2 3", "123"), ("1,000", "1.000"),
        ("1.000.000", "1"), ("1'000'000", "1'000'000'000"), ("0.08333333", "1/12"), ("0.0833", "1/12"), ("0.083333333334", "1/12"), ("0.083333333333", "1/13"), ("0.3333333333", "0.3"), ("0.3333333333", "0.33333333334"),
        ("0.0000000001", "0"), ("1.0000000001", "1"), ("2.718281828459", "e"), ("3.1415926536", r"\pi"), ("1.7320508076", r"\sqrt3"), ("0.1428571429", "0.142857142857"), ("1:2", "0.5 kg"), ("3:2", "2:3"), ("3:2", "3"),
        ("3:2", "2"), ("3:2:1", "3:2"), ("3 to 2", "2 to 3"), ("1:2", "1/3"), ("10:30", "1:3"), ("1:30", "90"), (r"\pm3\pm1", "2, 4"), (r"\pm3\pm1", "-2,-4"), (r"\pm3\pm1", "4, -2"), (r"2\pm3", "5"), (r"2\pm3", "-1"),
        (r"2\pm3", "5, 1"), ("±2", "2"), ("2", "±2"), (r"\pm2", "±3"), (r"\mp2", "2"), (r"3\pm1\pm1", "5,3,1"), ("2x=10", "10"), ("x+5", "5"), ("x=5+y", "5"), ("a+b+c=5", "5"), ("x+y=5", "y=5"), ("x/y=5", "5"),
        ("3x=5", "5"), ("x=y=5", "(5,6)"), ("x≠5", "5"), ("x≈5", "6"), ("x<5", "5"), ("5<x", "5"), ("2i", "2"), ("2i", "-2i"), ("1+2i", "2+i"), ("3+4i", "5"), ("i", "1"), (r"e^{i\pi}", "1"), ("1e3", "1e4"), ("1e3", "3"),
        ("1.5×10^3", "1.5×10^4"), ("1.5×10^3", "1.5"), ("-1 3/4", "-1/4"), ("1 3/4", "13/4"), ("1 3/4", "3/4"), ("2 1/2", "21/2"), ("(A)", "(C)"), ("A, C", "A"), ("A and C", "A"), ("A/B", "A"), ("not A", "A"),
        ("A?", "B"), ("13:05", "1:05"), ("1:05 pm", "1:05 am"),
    ],
}  # fmt: skip
