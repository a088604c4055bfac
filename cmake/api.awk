# Turns the comments of a header into those of Doxygen, which cmake/Api.cmake runs this for:
#
#   the first comment of the file                \file
#   // text           before a declaration       /// text, also before those that follow without an empty line
#   // errors: text                              a paragraph of that name
#   //   formula                                 as it stands
#   declaration;     // text                     ///< text, and so are comments below that begin further to the right
function spaces(n) { return substr("                                                                                ", 1, n) }
function indent_of(line) { match(line, /^ */); return RLENGTH }
function escaped(text) {
  gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
  gsub(/[\\@#%]/, "\\\\&", text)
  return text
}
function put(text) { shared[++lines] = text; print text }
# `type a, b;` as two declarations with the same comment, which else would be that of one of them.
function say_each(code, note, type, names, count, i, j) {
  match(code, /^ *((const|static|mutable|inline|constexpr) )*[A-Za-z_][A-Za-z_0-9:]* /)
  type = substr(code, 1, RLENGTH)
  count = split(substr(code, RLENGTH + 1, length(code) - RLENGTH - 1), names, /, */)
  for (i = 1; i <= count; ++i) {
    if (i > 1) for (j = 1; j <= lines; ++j) print shared[j]
    if (note != "") print note
    print type names[i] ";"
  }
}
function end_formula() { if (in_formula) put(margin "/// \\endcode"); in_formula = 0 }

{ text = $0; sub(/^ +/, "", text); indent = indent_of($0); is_comment = text ~ /^\/\// }

FNR == 1 && is_comment { print "/// \\file"; in_head = 1 }
!is_comment { end_formula(); if (in_head) { in_head = 0; lines = 0 } }

text == "" { lines = 0; open = 0; trailing = 0; in_comment = 0; print; next }

is_comment {
  rest = substr(text, 3)
  if (trailing && indent > code_indent + 4) { print spaces(indent) "///<" escaped(rest); next }
  if (!in_comment) lines = 0
  in_comment = 1
  doc_indent = indent
  margin = spaces(indent)
  if (rest ~ /^   /) {
    if (!in_formula) put(margin "/// \\code{.unparsed}")
    in_formula = 1
    put(margin "///" rest)
    next
  }
  if (in_formula && rest == "") { put(margin "///"); next }
  end_formula()
  if (match(rest, /^ (shapes|dtypes|units|aliasing|errors|grad|source|precision): /)) {
    put(margin "/// \\par" substr(rest, 1, RLENGTH - 2))
    rest = substr(rest, RLENGTH)
  }
  put(margin "///" escaped(rest))
  next
}

{
  # A declaration that begins here, of the same paragraph as one that has a comment.
  begins = !open && text !~ /^[}#]/ && text !~ /^(public|private|protected):/ && text !~ /^namespace /
  shares = begins && !in_comment && lines > 0 && indent == doc_indent
  if (shares) for (i = 1; i <= lines; ++i) print shared[i]
  if (indent < doc_indent) lines = 0
  code = $0
  trailing = text !~ /^}/ && match(code, /[^ ] +\/\/ /)  # a } says what ends
  note = ""
  if (trailing) {
    note = "/// " escaped(substr(code, RSTART + RLENGTH))
    code = substr(code, 1, RSTART)
    code_indent = indent
  }
  if (code ~ /^ *[A-Za-z_].*,.*;$/ && code !~ /[(<]/ && (trailing || in_comment || shares)) {
    if (!in_comment && !shares) lines = 0
    say_each(code, note)
    trailing = 0
  } else {
    sub(/^\/\/\//, "  ///<", note)
    print code note
  }
  in_comment = 0
  open = code !~ /[;}{:,]$/ && text !~ /^#/
}
