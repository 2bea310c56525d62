// The list of samples without its looks: who is shown, where one goes next, how classes are found.

export const MARKS = { accept: "✓", reject: "✕", correct: "✎" };

// A name as it is shown: characters that steer the reader, such as overrides of direction, as escapes.
export function shown(name) {
  return name.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (letter) => (
    letter === "\u200c" || letter === "\u200d" ? letter : `\\u${letter.codePointAt(0).toString(16).padStart(4, "0")}`));
}

// A row of the server's answer as an object.
export function samplesOf(answer) {
  return answer.samples.map(([client, id, path, given, suggested, score, probability], index) => ({
    index, id, path, score, probability,
    client: answer.clients[client], given: answer.labels[given], suggested: answer.labels[suggested],
  }));
}

// The samples that fit the filters, in the order of the list. Empty text means any.
export function filtered(samples, decided, filters) {
  return samples.filter((sample) => {
    const decision = decided.get(sample.index);
    return (filters.client === "" || sample.client === filters.client)
      && (filters.given === "" || sample.given === filters.given)
      && (filters.suggested === "" || sample.suggested === filters.suggested)
      && fitsState(decision, filters.state);
  });
}

function fitsState(decision, state) {
  if (state === "all") return true;
  if (state === "undecided") return !decision;
  return Boolean(decision) && (state === "decided" || decision.action === state);
}

// The place of the first undecided sample after a place, from the start again if there is none; -1 if all are decided.
export function nextUndecided(list, decided, after) {
  for (let step = 1; step <= list.length; step += 1) {
    const place = (after + step) % list.length;
    if (!decided.has(list[place].index)) return place;
  }
  return -1;
}

// Which class a digit chooses: the class of that name if all are called by a digit, else in their order, 0 for the tenth.
export function digitKeys(classes) {
  if (classes.length > 10) return new Map();
  if (classes.every((name) => /^[0-9]$/.test(name))) return new Map(classes.map((name) => [name, name]));
  return new Map(classes.map((name, i) => [String((i + 1) % 10), name]));
}

const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

// Classes with this text in their name: the whole name first, then its start, the start of a word, the middle.
export function findClasses(classes, text, recent) {
  const wanted = plain(text.trim());
  if (wanted === "") return [...recent, ...classes.filter((name) => !recent.includes(name))];
  const rank = (name) => {
    const bare = plain(name);
    if (bare === wanted) return 0;
    if (bare.startsWith(wanted)) return 1;
    const at = bare.indexOf(wanted);
    if (at < 0) return -1;
    return /[^\p{L}\p{N}]/u.test(bare[at - 1]) ? 2 : 3;
  };
  return classes.map((name) => [rank(name), name]).filter(([r]) => r >= 0)
    .sort((a, b) => a[0] - b[0]).map(([, name]) => name);
}

export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "less than 0.1 %";
  if (value < 100 && value > 99.9) return "more than 99.9 %";
  return `${value < 10 || value > 90 ? value.toFixed(1) : value.toFixed(0)} %`;
}

// The key that was pressed, for keyboards of other scripts by its place.
export function keyOf(event) {
  if (/^[a-z0-9]$/i.test(event.key)) return event.key.toLowerCase();
  if (event.key.length === 1 && event.key.charCodeAt(0) > 127 && /^Key[A-Z]$/.test(event.code)) return event.code[3].toLowerCase();
  if (event.key.length === 1 && !event.shiftKey && /^Digit[0-9]$/.test(event.code) && !"+-?".includes(event.key)) return event.code[5];
  return event.key;
}
