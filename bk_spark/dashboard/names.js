// Shows names that users and other processes chose, so that none breaks the page and none looks like another one.
//
// Plain ASCII stands as it is. Any other name is quoted, and what cannot be seen, or changes what stands beside it, is written as
// \u{…}. A long name is cut in the middle and gets a fingerprint of the whole, because the ends of two names may be alike.
"use strict";

// All printable ASCII without quotes and backslashes; no space at an end.
const PLAIN = /^[!#-[\]-~](?:[ !#-[\]-~]*[!#-[\]-~])?$/;
// Unseen: control, format, private and unassigned characters, and all spaces but the plain one.
const UNSEEN = /^(?:\p{C}|(?! )\p{Z})$/u;
// In a name that is not in normal form, marks are shown by number: otherwise one name has two spellings that look the same.
const MARK = /^\p{M}$/u;
const MOST_MARKS = 2; // on one letter: more of them run over the lines above and below

function pieces(text, isQuoted) {
  const showsMarks = text === text.normalize("NFC");
  let [marks, before] = [0, ""];
  return [...text].map((one) => {
    marks = MARK.test(one) ? marks + 1 : 0;
    const isUnseen = UNSEEN.test(one) || (one === " " && before === " ") || (marks > 0 && (!showsMarks || marks > MOST_MARKS || !before));
    before = one;
    if (isUnseen) return `\\u{${one.codePointAt(0).toString(16)}}`;
    return isQuoted && (one === '"' || one === "\\") ? `\\${one}` : one;
  });
}

// FNV-1a, 32 bits.
function fingerprint(text) {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193) >>> 0;
  return value.toString(16).padStart(8, "0").slice(0, 6);
}

// The ends of what is too long, together at most `longest` characters with the sign between them.
function middleCut(parts, longest) {
  const take = (from) => {
    let [size, count] = [0, 0];
    while (count < from.length && size + from[count].length <= (longest - 1) / 2) size += from[count++].length;
    return from.slice(0, count);
  };
  return `${take(parts).join("")}…${take([...parts].reverse()).reverse().join("")}`;
}

const longest = () => (window.innerWidth <= 560 ? 28 : 48);

// The name as text, on one line. `isTold` is false where something beside it tells names with the same ends apart.
function shown(name, most = longest(), isTold = true) {
  const text = String(name);
  const isQuoted = !PLAIN.test(text) || text.includes("  ");
  const parts = pieces(text, isQuoted);
  const isCut = parts.reduce((sum, one) => sum + one.length, 0) > most;
  const inner = isCut ? middleCut(parts, most) : parts.join("");
  return `${isQuoted ? `"${inner}"` : inner}${isCut && isTold ? ` #${fingerprint(text)}` : ""}`;
}

// The whole name as text.
const whole = (name) => shown(name, Infinity);

// A sentence of another process: not quoted, and cut if it is endless.
function said(sentence, most = 400) {
  const parts = pieces(String(sentence), false);
  return parts.reduce((sum, one) => sum + one.length, 0) > most ? middleCut(parts, most) : parts.join("");
}
