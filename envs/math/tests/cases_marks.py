r"""What `verify` must find of an answer in a response: marked, denied, doubted or asked, and the last number of a text.

Rows are (response, gold); every gold would be correct if the response were read without its words.
"""
# ruff: noqa: E501, RUF001  (tables are read by column; models write these signs)

_DENIED = {
    "a box": [
        r"It is false that the answer is \boxed{5}.", r"The answer is not \boxed{5}", r"The answer isn't \boxed{5}.", r"The answer isn’t $\boxed{5}$.", r"It is not true that the answer is \boxed{5}.", r"I do not think that the answer is \boxed{5}.",
        r"I don't believe it is \boxed{5}.", r"It cannot be \boxed{5}.", r"It can't be $\boxed{5}$.", r"The answer is never \boxed{5}.", r"Nobody says that it is \boxed{5}.", r"It is wrong to say \boxed{5}.", r"It would be incorrect to answer \boxed{5}.",
        r"\boxed{5} is wrong.", r"\boxed{5} is not the answer.", r"$\boxed{5}$ isn't right.", r"\boxed{5} cannot be the answer.", r"\boxed{5} was false.", r"\boxed{5}, but that is wrong.", r"\boxed{5}. That is wrong.", r"\boxed{5}. No, this is incorrect.", r"\boxed{5} (wrong)", r"\boxed{5} - not!",
        r"\boxed{5}. This is not correct.", r"Neither \boxed{5}", r"It is far from true that x is \boxed{5}; in fact it is not \boxed{5}.", r"I deny that it is \boxed{5}.", r"I reject \boxed{5}.", r"anything but \boxed{5}", r"It is 6 rather than \boxed{5}.", r"6 instead of \boxed{5}", r"It is everything except \boxed{5}",
        r"The answer does not equal \boxed{5}.", r"The answer is not equal to $\boxed{5}$.", r"It is a myth that x equals \boxed{5}.", "The answer is not\n\\[\\boxed{5}\\]", "It is not\n\\boxed{5}", r"We do not get \boxed{5}.", r"$x \neq 3$ and it is not $\boxed{5}$.", r"This is no \boxed{5}.", r"The answer isnt \boxed{5}",
        r"The claim that it is \boxed{5} is false.", r"I was mistaken that it is \boxed{5}.", r"\boxed{5}? No.", r"It is untrue that we get \boxed{5}.", r"\boxed{not 5}", r"\boxed{\text{not }5}", r"\boxed{5 is wrong}", r"\boxed{5\text{ is not the answer}}", r"\boxed{\text{never }5}",
        r"One should not say that it is \boxed{5}.", r"I disagree with \boxed{5}.", r"It must not be \boxed{5}.", r"It will never be \boxed{5}.", r"\boxed{5} would be wrong.", r"\boxed{5} does not work.",
    ],
    "a line": [
        "Answer: not 5", "Answer: 5 is wrong", "Answer: never 5", "The answer is not 5.", "The answer isn't 5.", "The final answer is not $5$.", "So the answer is not 5", "Answer: anything but 5", "**Answer:** not 5", "Answer:\nnot 5", "#### not 5", "#### 5 is wrong", "It is not #### 5", "<answer>not 5</answer>",
        "<answer>5 is incorrect</answer>", "It is not <answer>5</answer>", "It is false that it is <answer>5</answer>", "<answer>5</answer> is wrong.", "not 5", "5 is not it", "5 is wrong", "It is false that x = 5", "Nobody says x = 5", "never x = 5", "The answer cannot be 5.", "Answer: x is not 5", "Answer: nobody says x = 5",
        "I reject x = 5", "Not x = 5",
    ],
}  # fmt: skip
_DOUBTED = {
    "a box": [
        r"Maybe \boxed{5}", r"Perhaps it is \boxed{5}.", r"It is possibly \boxed{5}.", r"It might be \boxed{5}.", r"It could be \boxed{5}.", r"It may be \boxed{5}.", r"Probably \boxed{5}.", r"My guess is \boxed{5}.", r"I guess \boxed{5}.", r"I am not sure, but it is \boxed{5}.", r"I'm not certain that it is \boxed{5}.",
        r"\boxed{5}, but I am not sure.", r"\boxed{5} (not sure)", r"\boxed{5}. I am not sure.", r"\boxed{5}. But I do not know.", r"\boxed{5}, maybe.", r"\boxed{5} perhaps", r"\boxed{5} or 6", r"\boxed{6} or \boxed{5}", r"\boxed{6}, \boxed{5}", r"\boxed{4}, \boxed{6} and \boxed{5}", r"\boxed{5 or 6}", r"\boxed{5, 6}", r"\boxed{\text{maybe }5}",
        r"\boxed{5?}", r"I doubt that it is \boxed{5}.", r"It is doubtful whether it is \boxed{5}.", r"It is unlikely to be \boxed{5}.", r"If it is \boxed{5}, then fine.", r"Suppose it is \boxed{5}.", r"unless it is \boxed{5}", r"It is unclear, but \boxed{5}", r"I do not know whether it is \boxed{5}.", r"\boxed{5}. Wait, maybe 6.", r"Assume that we get \boxed{5}.",
        r"I am unsure: \boxed{5}", r"idk \boxed{5}", r"Allegedly \boxed{5}", r"I'm guessing \boxed{5}", r"I don't know if \boxed{5} is right.",
    ],
    "a line": [
        "Answer: maybe 5", "Answer: 5 or 6", "Answer: 5, 6", "Answer: 5 (not sure)", "Answer: 5, but I am not sure", "Answer: perhaps 5", "Answer: possibly 5.", "Answer: probably 5", "Answer: I guess 5", "The answer is maybe 5.", "The answer is 5 or 6.", "The answer is probably 5", "The answer might be 5.", "Maybe the answer is 5.",
        "#### maybe 5", "#### 5 or 6", "<answer>5 or 6</answer>", "<answer>maybe 5</answer>", "Maybe <answer>5</answer>", "maybe 5", "5 or 6", "5, maybe", "5 perhaps", "I guess 5", "I guess x = 5", "Suppose x = 5", "if x = 5", "x = 5 or x = 6", "Answer: unlikely 5", "5 unlikely",
    ],
}  # fmt: skip
_DOUBTED["a box"] += [
    r"No, the answer is not $5$ but it isn't \boxed{5} either.",
    r"There is no way it's \boxed{5}.",
    r"It is by no means \boxed{5}.",
    r"One might think the answer is \boxed{5}.",
    r"It's possible that it is \boxed{5}.",
    r"I am not confident in \boxed{5}.",
    r"A wrong answer would be \boxed{5}.",
    r"An incorrect answer is \boxed{5}.",
    r"The answer is \boxed{5}. Not really.",
    r"The answer is \boxed{5}. Just kidding, I have no clue.",
    r"The answer is \boxed{5}. Or is it 6?",
    r"The answer is \boxed{5}. Actually no, it is 6.",
    r"Either 6 or \boxed{5}.",
    r"\boxed{5} -- no, wait.",
    r"I refuse to answer \boxed{5}.",
    r"\boxed{5} unless I am mistaken.",
    r"It cannot be that x = \boxed{5}.",
    r"\boxed{5} is definitely not it.",
    r"It is impossible that the answer is \boxed{5}.",
    r"\boxed{5} seems wrong, or is wrong.",
    r"We reject the hypothesis that it is \boxed{5}.",
]
_ASKED = [
    r"Is the answer \boxed{5}? I do not know", r"Is it \boxed{5}?", r"\boxed{5}?", r"$\boxed{5}$?", r"Could it be \boxed{5}? Who knows.", r"Why \boxed{5}?", r"Is the answer \boxed{5} or 6?", "Answer: 5?", "Answer: 5? I do not know", "Answer: is it 5?", "#### 5?", "<answer>5?</answer>", "Is it <answer>5</answer>?", "5?", "Is it 5?", "x = 5?",
    "Is the answer 5? I do not know", "The answer is 5?", "Is x = 5?", "What if x = 5?",
]  # fmt: skip
UNSTATED = [*(said for table in (_DENIED, _DOUBTED) for rows in table.values() for said in rows), *_ASKED]
"""Of the gold 5."""

UNMARKED = [
    "It is 5", "It is 5.", "So 5.", "She has 5 apples.", "I get 5", "The result is 5.", "We find that x is 5.", "5 + 0 is 5, as we know.", "The answer to the question is 5.", "Answer: 5\n\nThis is because 2 + 3 = 5.", "The answer is 5. This follows from the sum.", "The answer is 5 because 2 + 3 = 5", "Answer: the sum of both is 5",
    "First line\nsecond line with 5", "That is 5", "The function value is $5$.", "I choose 5", "answer 5", "the answers: 5", "#### Step 5\nthen we go on", "#### We add 2 and 3\n and get 5", "##### 5", "<answer>5", "5</answer>", r"\boxed", r"\boxed{", r"\boxedd{5}", r"box{5}", "Final thoughts: 5", "The area of the square is 5", "Thus x equals\n5",
    "2 + 3\n= 5\n= 5", "I would say 5", "False: x = 5", "Let x = 5", "Answer: let x = 5", "Total cost = 5", "The question asks for 5",
]  # fmt: skip
"""No mark that the default reads, with a 5 in every one."""

MARKED = [
    # boxes, the words around which touch something else
    (r"The number of integers that are not divisible by 3 is $\boxed{5}$.", "5"), (r"The probability that it does not rain is $\boxed{\frac14}$.", r"\frac14"), (r"Since $n$ cannot be even, the answer is $\boxed{5}$.", "5"), (r"It is not 6, so the answer is \boxed{5}.", "5"), (r"You might guess 4, so be careful: therefore it is \boxed{5}.", "5"),
    (r"If $x < 5$, then $y > 2$, so the solution is $\boxed{(2,\infty)}$.", r"(2,\infty)"), (r"The answer is \boxed{5}, not 6.", "5"), (r"No borrowing occurs. Thus, the answer is $\boxed{5}$.", "5"), (r"The false statement is \boxed{C}.", "C"), (r"The number of wrong answers is $\boxed{5}$.", "5"), (r"\boxed{\text{False}}", "False"),
    (r"\boxed{\text{no}}", "no"), (r"\boxed{\text{impossible}}", "impossible"), (r"That was wrong. The answer is \boxed{5}.", "5"), (r"What is the sum? It is \boxed{5}.", "5"), (r"I think the answer is \boxed{5}.", "5"), (r"Is it 4? No. It is \boxed{5}.", "5"), (r"She cannot buy 6. She buys \boxed{5}.", "5"), (r"The digit is not allowed, which means the candidate is $\boxed{5}$.", "5"),
    (r"\boxed{5}. Let me check: 2 + 3 = 5, and 6 is not a solution.", "5"), (r"This is true if and only if $x \ge 3$, hence $\boxed{[3,\infty)}$.", r"[3,\infty)"), (r"The smallest integer that is not a factor is $\boxed{7}$.", "7"), ("3 does not work\nThe answer is \\boxed{5}", "5"), (r"Not all are even, but the sum is \boxed{5}.", "5"), (r"We do not have 6 because it is \boxed{5}.", "5"),
    (r"The largest value that it can have is $\boxed{5}$.", "5"), (r"\fbox{5}", "5"), (r"\framebox{5}", "5"), (r"\boxed  {5}", "5"), (r"\boxed 5.", "5"), (r"\[\boxed{5}\]", "5"), (r"**\boxed{5}**", "5"), (r"$x = \boxed{5}$ and this is not a surprise", "5"), (r"\boxed{\boxed{5}}", "5"), (r"\boxed{5}, which we wanted.", "5"), (r"so $x = 1\frac14$, or $\boxed{1.25}$.", "1.25"), ("so $a = \\boxed{5}$.\n\nOR\n\nWe can also add.", "5"), (r"The answer is $\boxed{5}$. This is not a trick question.", "5"), (r"Thus there are no more than \boxed{5} such numbers.", "5"), (r"$\boxed{5}$. This means that the function is not injective.", "5"), (r"Since $-1$ is not valid, $\boxed{5}$ is the only solution.", "5"), ("$\\boxed{5}$\n\nNote: the other root is not allowed.", "5"),
    (r"The answer is \boxed{5}. Is there another? No.", "5"), (r"We get $\boxed{5}$, which is not divisible by 2.", "5"), (r"No matter what, the answer is \boxed{5}.", "5"), (r"If $x$ is 2 then $y$ is 3, so $x + y = \boxed{5}$.", "5"), (r"The number of people who do not like tea is $10 - 5 = \boxed{5}$.", "5"), (r"The probability of not winning is $\boxed{5}$", "5"), (r"\boxed{5}. No other value is possible.", "5"),
    (r"Since there is no number that divides both, the answer is \boxed{5}.", "5"), (r"Removing the incorrect terms gives $\boxed{5}$", "5"), (r"We may take $x = \boxed{5}$.", "5"), (r"It can be shown that $n = \boxed{5}$", "5"), ("Therefore, the smallest number that isn't a sum of two squares is \\(\\boxed{5}\\).", "5"),
    # lines
    ("Answer: 5", "5"), ("answer: 5", "5"), ("ANSWER: 5", "5"), ("Answer: 5.", "5"), ("Final answer: 5", "5"), ("Final Answer: $5$", "5"), ("**Answer:** 5", "5"), ("**Answer**: 5", "5"), ("**Final Answer: 5**", "5"), ("### Final answer: 5", "5"), ("The answer is 5", "5"), ("The answer is 5.", "5"), ("So the answer is 5.", "5"), ("Therefore, the final answer is $5$.", "5"),
    ("The correct answer is (B).", "B"), ("2 + 3 = 5\nAnswer: 5", "5"), ("I am not sure.\nIt was hard.\n\nAnswer: 5", "5"), ("**Final Answer**\n\n5", "5"), ("Answer:\n5", "5"), ("Answer:\n\n$$\n5\n$$", "5"), ("Answer: $$\n5\n$$", "5"), ("The final answer is:\n\\[\n5\n\\]\n", "5"), ("Answer: x = 5", "5"), ("Answer: 5 apples", "5"), ("Answer: \\frac{1}{2}", "0.5"), ("Answer: -5", "-5"),
    ("Answer: `5`", "5"), ("> Answer: 5", "5"), ("- Answer: 5", "5"), ("Answer: 5\n\n\n   ", "5"), ("My answer: 5", "5"), ("Answer = 5", "5"), ("Answer: no", "no"), ("Answer: Evelyn", "Evelyn"), ("Answer: even", "even"), ("Answer: 1, 2", "2, 1"), ("Answer: 1 or 2", "1, 2"), ("Answer: (1, 2)", "(1,2)"), ("Answer: \\boxed{5}", "5"), ("Answer: 2 + 3 = 5", "5"), ("Final Answer: The answer is 5.", "5"),
    # four hashes and tags
    ("#### 5", "5"), ("so 5\n#### 5", "5"), ("He can't eat 3\n#### 5", "5"), ("2 + 3 = 5 #### 5", "5"), ("####5", "5"), ("#### $5", "5"), ("#### 1,234", "1234"), ("#### 5\nThat is all.", "5"), ("#### B", "B"), ("#### Step 1\nadd\n#### 5", "5"), ("#### 5\n#### Why\nBecause.", "5"), ("#### \\frac{1}{2}", "0.5"), ("<answer>5</answer>", "5"), ("<ANSWER> 5 </ANSWER>", "5"),
    ("<answer>\n5\n</answer>", "5"), ("<answer>\\boxed{5}</answer>", "5"), ("<answer>The answer is 5.</answer>", "5"), ("<answer>6</answer> no: <answer>5</answer>", "5"), ("<answer>5</answer>\nDone.", "5"), ("Not 6. <answer>5</answer>", "5"),
    # nothing but the answer
    ("5", "5"), (" 5\n", "5"), ("5.", "5"), ("$5$", "5"), ("$x=5$", "5"), ("x = 5.", "5"), ("\\[5\\]", "5"), ("$$\n5\n$$", "5"), ("**5**", "5"), ("5 apples", "5"), ("-5", "-5"), ("1/2", "0.5"), ("2 + 3 = 5", "5"), ("(1, 2)", "(1,2)"), ("x > 5", "x>5"), ("Evelyn", "Evelyn"), ("no", "no"), ("B", "B"), ("(B)", "B"), ("x^2+1", "x^2+1"), ("Area = 12", "12"), ("= 5", "5"),
    ("5!", "120"), ("1, 2", "2,1"), ('"5"', "5"), ("x = 1 or x = 2", "1, 2"), ("right triangle", "right triangle"),
    # the last mark wins
    (r"\boxed{6}. No: \boxed{5}", "5"), ("\\boxed{6}\nAnswer: 5", "5"), ("Answer: 6\nso \\boxed{5}", "5"), ("#### 6\n\\boxed{5}", "5"), ("\\boxed{6}\n#### 5", "5"), ("<answer>6</answer>\n\\boxed{5}", "5"), ("\\boxed{6} <answer>5</answer>", "5"), ("#### 6\n<answer>5</answer>", "5"), ("<answer>6</answer>\nThe answer is 5.", "5"), ("The answer is not \\boxed{6}. It is \\boxed{5}.", "5"),
    ("Is it \\boxed{6}? No, it is \\boxed{5}.", "5"), ("Maybe \\boxed{6}.\n\nAnswer: 5", "5"), ("$\\boxed{5}$, that is $\\boxed{5}$", "5"), (r"$x=\boxed{1}$ and $x=\boxed{2}$", "1,2"), (r"$\boxed{1}$ or $\boxed{2}$", "2, 1"), ("Answer: 6\nAnswer: 5", "5"), ("#### 6\n#### 5", "5"), ("<think>\\boxed{6}</think>5", "5"),
]  # fmt: skip

NUMBERS = [
    # (response, gold, status) by fallback="number"
    *((said, "15", "correct") for said in (
        "15", "7 + 8 = 15", "7+8=15", "The sum of 7 and 8 is 15.", "It is 15", "So *15*.", "It is **15**.", "She has $15.", "She has 15 apples left.", "The answer is 15.", "Answer: 15", "The answer to the question is 15.", "The answer is 15 because 7 + 8 = 15", "Therefore, there are 15 of them.", "It is equal to 15.", "It comes to 15", "She has a total of 15.",
        "She does not have 12, so she has 15 apples.", "We have 15 left over.", "There are 15 of them in the box", "She pays $15 per month.", "which equals 15", "It is 15.0", "(15)", "$15$", "\\(15\\)", "\\[15\\]", "It's 15!", "Half of 30 is 15.", "5 times 3 is 15", "Total: 3 + 12 = 15 apples.", "15 is the answer.", "\\boxed{15}", "so 14 is wrong. It is 15.", "#### 15",
        "<answer>15</answer>", "It is 15\n15", "7 + 8 = 15\n\nI hope this helps!", "The total cost is 15 dollars and that's it", "x = 15.", "I do not know 7 + 8. It is 15.", "15 ", "7 × 8 is not it; 7 + 8 = 15", "The answer is 15. To find 7 + 8, 7 and 8", "The answer is 7 + 8 = 15.", "Answer: 15, as 7 + 8", "The answer is\n15", "6 + 9 = 15\nThe answer is obtained by adding",
    )),
    ("It costs $1,234.50 in total.", "1234.5", "correct"), ("The result is -5.", "-5", "correct"), ("The result is −5.", "-5", "correct"), ("That is 1/2.", "0.5", "correct"), ("the probability is $\\frac{3}{4}$", "0.75", "correct"), ("The position increases by 100%.", "100%", "correct"), ("it is 1,000.99€", "1000.99", "correct"),
    *((said, "15", "no_answer") for said in (
        "7 + 15", "30 - 15", "3 * 15", "3 × 15", "60 / 15", "2^15", "x > 15", "< 15", "14 or 15", "14 and 15", "14, 15", "13 14 15", "13\n14\n15", "(3, 15)", "[3, 15]", "f(15)", "x15", "3:15", "√15", "not 15", "It is not 15", "It isn't 15.", "It cannot be 15.", "Maybe 15", "It might be 15.", "I guess 15", "15?", "Is it 15?", "Is it 15? I do not know.", "15, but I am not sure",
        "15 or more", "at least 15", "more than 15", "15 times 2 things", "15 squared", "15 hundred", "15th", "15x", "15 + x", "15 -", "step 15 =", "minus 15", "3 times 15", "4 to 15", "divided by 15", "raised to 15", "I doubt that it is 15", "It is false that it is 15.", "15 is wrong.", "15 is not the answer", "I do not know.", "", "fifteen", "The answer is not 15.", "The answer is 15 or 16.",
        r"The answer is not \boxed{15}", r"\boxed{15}? I do not know", "#### not 15", "-(15)", "10 -15", "15 mod 4", "log_2(15)", "If it is 15", "whether it is 15", "15.5.1", "3 choose 15", "|15|", "±15", r"\pm 15", "between 3 and 15", "15 minus x", "The answer is 15 or 16. Is it 14?", "The answer is 15? Or 15?", "The answer is 7 + 15",
    )),
]  # fmt: skip

LAST_NUMBERS = [
    ("The answer is 5 because 2+3=5", "5"), ("The answer is 42 (as 6*7 = 42)", "42"), ("The answer to the question is 5.", "5"), ("She has 15 apples", "15"), ("It is **15**", "15"),
    ("Final Answer: The volume of $ABCDEFGH$ is 120. I hope it is correct.", "120"), ("Final Answer: The largest $n$ is 34.", "34"), ("Final Answer: Jane started growing Sphere 3 hours ago. I hope it is correct.", "3"),
    ("the position increases by 100%.", "$100%$"), ("So $P(A) = 2/3$ Therefore, the probability that Alice wins is 2/3. Ask me more", "2/3"), ("Answer \\[ 9 \\]", "9"), ("so she has 5 apples left", "5"),
    ("Therefore, there are 5 of them.", "5"), ("The answer is exactly 5.", "5"), ("The answer is therefore 5.", "5"), ("The answer is given by 5", "5"), ("The answer is equal to 5.", "5"), ("The answer is thus $5$.", "5"),
    ("She has a total of 5.", "5"), ("The area is 7.", "7"), ("It comes to 7", "7"), ("The total cost is $7.", "7"), ("A takes 3, so 7 are left.", "7"), ("She does not have 12, so she has 7 apples.", "7"),
    ("That is 5 more than 2, so it is 7.", "7"), ("The sum of 3 and 4 is 7.", "7"), ("He has 7 dollars left over.", "7"), ("The number of ways is 10 choose 3 = 120.", "120"), ("It is equal to 7.", "7"), ("Half of 14 is 7.", "7"),
    ("The answer is 5 (as 2+3 = 5).", "5"), ("Step 3: 5 apples", "5"), ("It's 5!", '5'), ("We have 5 left over.", "5"), ("She is 5 years older than Bob", "5"), ("There are 5 of them in the box", "5"), ("She pays $5 per month.", "5"),
    ("which equals 5", "5"), ("The answer is 5 hours and that's it", '5'),
]  # fmt: skip
"""Prose that only the last number answers."""

PROSE = [
    ("On day 3, 15 were left.", "15"), ("So we get $y=2x$ here.", "y=2x"), ("so the number is 10 which is 1,000.99m²", "1000.99"), ("so $(x, y)$ is $(7, 6)$. Bye", "(7,6)"), ("We find that $x \\lt 3$.", "x < 3"),
    ("So she needs 5 more apples.", "5"), ("He ran 5 times.", "5"), ("The correct option is B", "B"), ("The answer is B, not A.", "B"), ("I choose B.", "B"), ("It is Tuesday.", "Tuesday"), ("So, the area is 36π.", "36\\pi"),
    ("The solutions are 1 and 2.", "1,2"), ("The answer is 5, not 6.", "5"), ("There are 3 apples and 7 pears.", "7"), ("The value is 2√7.", "2\\sqrt7"), ("The answer is 2.5 times.", "2.5"), ("John has 5 more than Mary", "5"),
    ("It weighs 5kg", "5"), ("The best choice is C", "C"), ("The interval is (1,2]", "(1,2]"), ("The function is even.", "even"),
]  # fmt: skip
"""Prose that no policy reads."""

BOX_POLICIES = [
    # (response, gold, box, status)
    (r"The answer is not \boxed{5}.", "5", "first", "no_answer"), (r"The answer is not \boxed{5}.", "5", "only", "no_answer"), (r"Is it \boxed{5}?", "5", "all", "no_answer"), (r"\boxed{5} then \boxed{6}", "5", "first", "correct"), (r"\boxed{5} then not \boxed{6}", "5", "first", "correct"), (r"\boxed{5} and \boxed{6}", "5,6", "all", "correct"),
    ("\\boxed{5}\nAnswer: 6", "5", "first", "correct"), ("\\boxed{5}\nAnswer: 6", "5", "only", "correct"), ("\\boxed{5}\nAnswer: 6", "5", "last", "incorrect"), (r"\boxed{} \boxed{5}", "5", "first", "no_answer"),
]  # fmt: skip

CHANGED = [
    "$x\\ne\\boxed{5}$",
    "$x\\not=\\boxed{5}$",
    "≠\\boxed{5}",
    "¬\\boxed{5}",
    "$x\\notin\\{\\boxed{5}\\}$",
    "$x<\\boxed{5}$",
    "$\\boxed{5}<x$",
    "$-\\boxed{5}$",
    "$\\boxed{5}^2$",
    "$\\boxed{5}+1$",
    "$2\\boxed{5}$",
    "$\\sqrt{\\boxed{5}}$",
    "$\\frac{\\boxed{5}}{2}$",
    "$\\frac{1}{\\boxed{5}}$",
    "$1\\boxed{5}$",
    "$\\boxed{5}0$",
    "$0.\\boxed{5}$",
    "\\boxed{5}\\times 10^3",
    "$\\boxed{5}=6$",
    "$\\boxed{3}+\\boxed{5}$",
    "$(\\boxed{5},2)$",
    "$(2,\\boxed{5})$",
    "$\\{1,\\boxed{5}\\}$",
    "$\\boxed{5},2$",
    "$\\boxed{5}.5$",
    "$\\boxed{1}\\boxed{5}$",
    "$\\boxed{5}/2$",
    "$\\boxed{5}!$",
    "$\\boxed{5}\\pi$",
    "$\\boxed{5}x$",
    "\\boxed{5} $\\neq$ answer",
    "x ≠ \\boxed{5}",
    "The answer ≠ $\\boxed{5}$",
    "The answer is != \\boxed{5}",
    "!\\boxed{5}",
    "$x^{\\boxed{5}}$",
    "-\\boxed{5}",
    "-$\\boxed{5}$",
    "\\begin{pmatrix}1\\\\\\boxed{5}\\end{pmatrix}",
    "$|\\boxed{5}|$",
    "$\\sin(\\boxed{5})$",
    "$\\sin\\boxed{5}$",
    "$\\boxed{5}\\sqrt2$",
    "$10-\\boxed{5}$",
    "$x \\boxed{5}$",
    "$3:\\boxed{5}$",
    "$x\\le\\boxed{5}$",
    "$\\sqrt\\boxed{5}$",
    "~~\\boxed{5}~~ 6",
    "\\sout{\\boxed{5}} it is 6",
    "The answer is \\boxed{5} more than 7.",
    "2 * \\boxed{5}",
    "$2*\\boxed{5}$",
    "2**\\boxed{5}",
    "\\boxed{5}**2",
    "$\\boxed{5} \\cdot 2$",
    "$\\boxed{5} \\ge x$",
    "<answer>5</answer> or 6",
    "<answer>5</answer> wrong",
    "<answer>5</answer> - not!",
]
"""Of the gold 5: a box that its own formula changes, and a tag that the words behind it deny."""

ALONE = [
    "$2+3=\\boxed{5}$",
    "$\\boxed{5}=2+3$",
    "$x>4\\Rightarrow\\boxed{5}$",
    "$x\\approx\\boxed{5}$",
    "$x=\\boxed{5}$",
    "so \\boxed{5} it is",
    "$\\boxed{5}$ cm",
    "\\boxed{5}\\text{ cm}",
    "**\\boxed{5}**",
    "<answer>\\boxed{5}</answer>",
    "Answer: $\\boxed{5}$",
    "\\[\\boxed{5}\\]",
    "\\(\\boxed{5}\\).",
    "\\[\n\\boxed{5}\n\\]",
    "x = 5 → \\boxed{5}",
    "\\begin{align*}x&=2+3\\\\&=\\boxed{5}\\end{align*}",
    "\\begin{align*}x&=2+3\\\\&=\\boxed{5}.\\end{align*}",
    "The answer is \\boxed{5}!",
    "The answer is: **$\\boxed{5}$**",
    "$x=\\mathbf{\\boxed{5}}$",
    "$\\boxed{5}$ apples",
    "$\\$\\boxed{5}$",
    "$\\text{the answer is }\\boxed{5}$",
    "There are \\boxed{5} in all.",
    "#### \\boxed{5}",
    "2 + 3 = 5. \\boxed{5} (five)",
    "\\boxed{5}^\\circ",
    "\\boxed{\\boxed{5}}",
    "- x\n\n\\boxed{5}\n\n- done",
    "$x = 3$ $\\boxed{5}$",
    "Thus $\\boxed{5}$-gon",
    "We get $\\boxed{5}$.\n\n## End",
    "2+3=5\n\\boxed{5}",
    "The answer is $3!-1!=\\boxed{5}$.",
    "So $\\boxed{5}$ more than before.",
    "Zach can have at most $\\boxed{5}$ pencils.",
]
"""Of the gold 5: a box that stands alone, or behind a sign that leaves it as it is."""

BELONGING = [
    # (response, gold, reward): what stands beside the box is part of the answer
    (r"$\boxed{5}\text{ km}$", "5 m", 0), (r"$\boxed{5}$ km", "5 m", 0), (r"$\boxed{50}\%$", "50 kg", 0), (r"\$\boxed{5}", "€5", 0), (r"$\boxed{5}$ dollars", "5 cm", 0), (r"$\boxed{5}\text{ cm}^2$", r"5\text{ cm}", 0), (r"$\boxed{x}+1$", "x", 0), (r"$(\boxed{1},2)$", "1", 0),
    (r"$\boxed{5}\text{ cm}$", "5 cm", 1), (r"$\boxed{5}$ cm", "5 cm", 1), (r"$\boxed{50}\%$", r"50\%", 1), (r"\$\boxed{5}", r"\$5", 1), (r"$\boxed{30}^\circ$", r"30^\circ", 1), (r"$\boxed{30}^\circ$", "30 cm", 0),
]  # fmt: skip

TAKEN_BACK = [
    "\\boxed{5}. Wrong.",
    "\\boxed{5}, wrong",
    "\\boxed{5}: wrong",
    "\\boxed{5}. The above is wrong.",
    "\\boxed{5}\n\nThe above answer is incorrect.",
    "What if it is \\boxed{5}",
    "If it is even, then \\boxed{5}.",
    "\\boxed{5} if n is even and 6 if n is odd.",
    "\\boxed{5}. Actually, it is 6.",
    "\\boxed{5}. Wait, it should be 6.",
    "\\boxed{5}. Sorry, I meant 6.",
    "\\boxed{5}\n\nCorrection: the answer is 6.",
    "\\boxed{5}\n\nEdit: the answer is 6.",
    "\\boxed{5}\n\nWait, I made a mistake. The answer is 6.",
    "Wrong: \\boxed{5}. Right: 6.",
    "False: \\boxed{5}",
    "We can rule out \\boxed{5}.",
    "\\boxed{5} is rejected.",
    "\\boxed{5} is an extraneous solution.",
    "Everything but \\boxed{5}.",
    "~~\\boxed{5}~~ 6",
    "The answer is less than \\boxed{5}.",
    "It exceeds \\boxed{5}.",
    "It is at most \\boxed{5}",
    "It is twice \\boxed{5}",
    "\\boxed{5} can be ruled out.",
    "\\boxed{5}! Wrong!",
    "\\boxed{5}\n\nThat was a mistake.",
    "<answer>5</answer> false",
    "<answer>5</answer> not.",
]
"""Of the gold 5: withdrawn behind the mark, or made another value by the words before it."""

CHANGED_NUMBERS = [
    ("It is half of 10", "10"),
    ("It is the square root of 25", "25"),
    ("double 5", "5"),
    ("the cube of 5", "5"),
    ("a third of 5", "5"),
    ("20% of 5", "5"),
    ("all but 5", "5"),
    ("up to 5", "5"),
    ("Step 5: done", "5"),
    ("Problem 5", "5"),
    ("(see step 5)", "5"),
    ("The answer is unknown. I saw 5 cats.", "5"),
    ("It's 5 x 4", "4"),
    ("It's 5 x 4", "5"),
    ("5 out of 6", "6"),
    ("5 out of 6", "5"),
    ("subtract 5", "5"),
    ("half 5", "5"),
    ("No. 5", "5"),
    ("Question 5.", "5"),
]
"""By fallback="number": operands in words, labels and parts."""
