"""Texts on which two tokenizers that differ in how they cut text give different tokens."""

PROBES = (
    "Hello world",
    " leading and  double   spaces \n\n\n lines\r\n\tand tabs\t\t end ",
    "don't DON'T we'll WE'LL I'm they've he'd it's l'été",
    "0 12 345 6789 1234567890 3.14159 1,000,000 1e-9 0x7f v2.0.1",
    "camelCase PascalCase snake_case SCREAMING_CASE kebab-case XMLHttpRequest iPhone15Pro",
    "def f(x):\n    return {'a': [1, 2], \"b\": x**2}  # comment\n\n\nif __name__ == '__main__':\n\tf(3)\n",
    "!!! ?!? ... ,,, ;;; ((())) [[]] {{}} <<>> // \\\\ ## $$ %% ^^ && ** ++ == ~~ `` || @@ --- ___",
    "naïve café Ångström e\u0301 o\u0308 ﬁ ½ ² Ⅳ №",
    "你好，世界。日本語のテキスト、カタカナ。한국어 텍스트 123 中文数字一二三",
    "Привет мир! Γειά σου κόσμε. שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก",
    "🙂 👩‍👩‍👧‍👦 🇩🇪 🏳️‍🌈 ✨text🔥",
    "a\u00a0b\u2003c\u200bd\ufeffe\u3000f\u2028g",
    "https://example.com/path?query=1&other=%20#frag user@example.org C:\\Windows\\System32",
    "\n", " ", "  ", "\t", "\r\n\r\n", "a\n", "a\n ", " a", "'s", "1 ", "!\n",
)  # fmt: skip
