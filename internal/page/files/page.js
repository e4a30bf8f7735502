// The page of `valkeysync ui`. It shows what /events says, and asks for nothing else but an unlock. Names are anybody's:
// they go into the page as text, never as HTML.
'use strict';

const mostRows = 200;   // that are shown at once
const mostLines = 500;  // of the log
const lostFor = 15_000; // ms for which a lock that was lost stays marked

const at = (id) => document.getElementById(id);
const locks = new Map();  // by id: { ...lock, at: when it was told }
const rows = new Map();   // by id: what stands in the table
const lost = new Map();   // by id: until when it is marked
let unlockable = false;
let first = true;         // nothing was told yet
let run = '', seq = 0;    // of the log
let asked = null;         // what the dialog is about: { id, hold }

// element makes an element. What is in it is text, or other elements.
function element(name, attributes, ...content) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...content);
  return e;
}

// named shows something of somebody else's: { text, quoted }.
function named(t) {
  const e = element('bdi', { class: t.quoted ? 'name quoted' : 'name' }, t.text);
  if (t.quoted) e.title = 'quoted: it contains what cannot be shown';
  return e;
}

function long(e, t) {
  if (t.text.length > 160) {
    e.classList.add('long');
    e.tabIndex = 0; // it scrolls
  }
  return e;
}

function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}

const number = (n) => n.toLocaleString('en');
const set = (e, text) => { if (e.textContent !== text) e.textContent = text; };

// ticking remembers an element that shows a time, so that it goes on.
function ticking(row, e, f) {
  row.ticks.push(() => set(e, f(performance.now())));
  return e;
}

// ---- The table.

const heads = ['Lock', 'State', 'Held by', 'For', 'Lease left', 'Waiting', ''];

function makeRow(id) {
  const tr = element('tr', { role: 'row' });
  const cells = heads.map((head, i) => element(i ? 'td' : 'th', i ? { role: 'cell', 'data-head': head } : { role: 'rowheader', scope: 'row' }));
  cells[2].className = 'by';
  cells[3].className = cells[4].className = 'number';
  cells[6].className = 'act';
  tr.append(...cells);
  const row = { id, tr, cells, ticks: [], lock: null, hold: undefined };
  if (unlockable) {
    const b = element('button', { type: 'button' }, 'Unlock…');
    b.addEventListener('click', () => ask(id));
    cells[6].append(b);
    row.button = b;
  } else {
    cells[6].hidden = true;
  }
  return row;
}

// folded is a list of which the first three are seen at once, and the rest when it is asked for. all: how many there
// are, with those that nobody has told the page of.
function folded(cell, kind, items, all) {
  if (!all) return ['–'];
  const parts = [element(kind, {}, ...items.slice(0, 3))];
  if (all > 3) {
    const rest = element(kind, kind === 'ol' ? { start: 4 } : {}, ...items.slice(3));
    if (all > items.length) rest.append(element('li', { class: 'small' }, `and ${number(all - items.length)} more`));
    const d = element('details', {}, element('summary', {}, `${number(all - 3)} more`), rest);
    d.open = !!cell.querySelector('details')?.open;
    parts.push(d);
  }
  return parts;
}

const modes = { reader: 'reads', permit: 'permit', exclusive: '', foreign: '' };

function holderItem(h) {
  const about = [];
  if (h.mode === 'permit') about.push(h.weight === 1 ? '1 permit' : `${number(h.weight)} permits`);
  else if (modes[h.mode] === undefined) about.push(h.mode);
  else if (modes[h.mode]) about.push(modes[h.mode]);
  if (h.token) about.push(`token ${h.token}`);
  return element('li', {}, long(named(h.name), h.name), element('span', { class: 'small' }, about.join(', ')));
}

function waiterText(q) {
  if (q.mode === 'permit') return q.weight === 1 ? 'for 1 permit' : `for ${number(q.weight)} permits`;
  if (q.mode === 'reader') return 'to read';
  return q.mode === 'exclusive' ? '' : `for ${q.mode}`;
}

// fill writes a lock into its row.
function fill(row, lock) {
  const [key, state, by, held, lease, waiting] = row.cells;
  if (!row.lock) {
    key.append(long(named(lock.key), lock.key));
  } else if (row.hold !== lock.hold) {
    row.tr.classList.remove('fresh');
    void row.tr.offsetWidth; // so that it flashes again
    row.tr.classList.add('fresh');
  }
  row.hold = lock.hold;
  row.lock = lock;
  row.ticks = [];
  row.tr.dataset.state = lock.state;

  const word = element('span', { class: 'state' });
  if (lock.state === 'free' && lock.free_ms !== undefined) {
    ticking(row, word, (now) => `free for ${span(lock.free_ms + now - lock.at)}`);
  } else {
    word.textContent = lock.words;
  }
  state.replaceChildren(word);

  by.replaceChildren(...folded(by, 'ul', lock.holders.map(holderItem), lock.holding));

  held.replaceChildren();
  lease.replaceChildren();
  const h = lock.holders[0];
  if (h && h.held_ms !== null) ticking(row, held, (now) => span(h.held_ms + now - lock.at));
  else held.textContent = h ? 'unknown' : '–';
  if (h && h.left_ms !== null) {
    const left = Math.min(...lock.holders.filter((o) => o.left_ms !== null).map((o) => o.left_ms));
    row.ticks.push(() => {
      const ms = left - (performance.now() - lock.at);
      set(lease, ms < 0 ? 'overdue' : span(ms));
      lease.classList.toggle('late', ms < 0);
    });
  } else {
    lease.textContent = h ? 'never' : '–';
    lease.classList.toggle('late', !!h);
  }

  const queue = lock.queue.map((q) => {
    const who = element('span', {}, named(q.name));
    const what = waiterText(q);
    if (what) who.append(element('span', { class: 'small' }, what));
    return element('li', { class: 'row' }, who, ticking(row, element('span'), (now) => span(q.wait_ms + now - lock.at)));
  });
  waiting.replaceChildren(...folded(waiting, 'ol', queue, lock.waiting));
  for (const cell of [by, held, lease, waiting]) cell.classList.toggle('void', cell.textContent === '–');
  if (row.button) {
    row.button.disabled = !lock.hold;
    row.button.setAttribute('aria-label', `Unlock ${lock.key.text}…`);
  }
  for (const t of row.ticks) t();
}

const byKey = new Intl.Collator('en', { numeric: true }).compare;
const orders = {
  key: (a, b) => byKey(a.key.text, b.key.text),
  waiting: (a, b) => b.waiting - a.waiting || orders.key(a, b),
  held: (a, b) => since(a) - since(b) || orders.key(a, b),
};
const since = (l) => l.holders.length && l.holders[0].held_ms !== null ? l.at - l.holders[0].held_ms : Infinity;

function matches(lock, words) {
  if (!words.length) return true;
  const names = [lock.key, ...lock.holders.map((h) => h.name), ...lock.queue.map((q) => q.name)].map((t) => t.text.toLowerCase());
  return words.every((w) => names.some((n) => n.includes(w)));
}

function render() {
  const words = at('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [...locks.values()].filter((l) => matches(l, words)).sort(orders[at('sort').value]);
  const shown = found.slice(0, mostRows);
  const keep = new Set(shown.map((l) => l.id));
  for (const [id, row] of rows) {
    if (!keep.has(id)) {
      row.tr.remove();
      rows.delete(id);
    }
  }
  const body = at('rows');
  shown.forEach((lock, i) => {
    let row = rows.get(lock.id);
    if (!row) {
      row = makeRow(lock.id);
      rows.set(lock.id, row);
    }
    if (row.lock !== lock) fill(row, lock);
    if (body.children[i] !== row.tr) body.insertBefore(row.tr, body.children[i] || null);
  });
  mark();
  at('locks').hidden = !shown.length;
  const none = at('none');
  none.hidden = !!shown.length || first;
  set(none, locks.size ? 'No lock matches the filter.' : 'No lock is held or waited for.');
  let text = `${number(locks.size)} ${locks.size === 1 ? 'lock' : 'locks'}`;
  if (words.length) text = `${number(found.length)} of ${text} match`;
  if (found.length > shown.length) text += `, ${number(found.length - shown.length)} of them not shown: filter to find them`;
  // To those who hear the page it is told while they filter, and not whenever some lock comes or goes.
  at('count').ariaLive = document.activeElement === at('filter') ? 'polite' : 'off';
  set(at('count'), first ? '' : text);
}

function mark() {
  const now = performance.now();
  for (const [id, until] of lost) if (until < now) lost.delete(id);
  for (const [id, row] of rows) row.tr.classList.toggle('lost', lost.has(id));
}

let planned = false;
function plan() {
  if (planned) return;
  planned = true;
  setTimeout(() => {
    planned = false;
    render();
  }, 50);
}

// ---- The log.

function line(e) {
  const when = new Date(e.at);
  const li = element('li', { class: e.kind === 'gap' || e.kind === 'unlocked' ? e.kind : '', 'data-kind': e.kind },
    element('time', { datetime: e.at, title: when.toString() }, when.toLocaleTimeString('en-GB')));
  if (e.key) {
    li.append(element('span', {}, long(named(e.key), e.key)));
    const what = element('span', {}, e.words, element('br'));
    what.append(element('span', { class: 'small' }, 'last seen with ', named(e.holder), e.token ? `, token ${e.token}` : ''));
    li.append(what);
  } else {
    li.append(element('span', {}, e.words));
  }
  return li;
}

function write(entries, fresh) {
  const log = at('log');
  for (const e of entries) {
    log.prepend(line(e));
    if (e.id && fresh) lost.set(e.id, performance.now() + lostFor);
  }
  while (log.children.length > mostLines) log.lastChild.remove();
  at('quiet').hidden = log.children.length > 0;
}

// ---- The stream.

const phases = {
  connecting: 'connecting', looking: 'looking for locks', live: 'live', blind: 'without notifications',
  down: 'the server is away', away: 'valkeysync ui is away',
};

function phase(name, text) {
  const e = at('phase');
  e.dataset.phase = name;
  set(e, phases[name]);
  document.body.classList.toggle('stale', name === 'down' || name === 'away');
  const notice = at('notice');
  notice.hidden = !text;
  set(notice, text);
}

function take(news) {
  const now = performance.now();
  const fresh = !first;
  if (news.whole) {
    first = false;
    locks.clear();
    if (unlockable !== news.whole.unlock) {
      unlockable = news.whole.unlock;
      document.querySelector('thead .act').hidden = !unlockable;
      for (const row of rows.values()) row.tr.remove();
      rows.clear();
    }
    set(at('server'), news.whole.server);
    set(at('prefix'), news.whole.prefix.text ? ` keys that begin with ${news.whole.prefix.text}` : '');
  }
  for (const lock of news.locks || []) {
    lock.at = now;
    locks.set(lock.id, lock);
  }
  for (const id of news.gone || []) locks.delete(id);
  if (news.state) phase(news.state.phase, [news.state.text, news.state.cut].filter(Boolean).join(' '));
  const entries = (news.log || []).filter((e) => news.run !== run || e.seq > seq);
  run = news.run;
  if (entries.length) {
    seq = entries[entries.length - 1].seq;
    write(entries, fresh);
  } else if (news.whole && !(news.log || []).length && seq === 0) {
    at('quiet').hidden = false;
  }
  if (asked) check();
  plan();
}

function listen() {
  const source = new EventSource('events');
  source.onmessage = (m) => take(JSON.parse(m.data));
  source.onerror = () => {
    phase('away', 'This page is not connected to valkeysync ui: what it shows is old. It tries again.');
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000); // refused; a lost one comes back by itself
  };
}

// ---- Unlock.

function ask(id) {
  const lock = locks.get(id);
  if (!lock || !lock.hold) return;
  asked = { id, hold: lock.hold };
  at('ask-key').replaceChildren(long(named(lock.key), lock.key));
  const items = lock.holders.map(holderItem);
  if (lock.holding > items.length) items.push(element('li', {}, `and ${number(lock.holding - items.length)} more`));
  at('ask-holder').replaceChildren(element('ul', {}, ...items));
  at('ask-next').replaceChildren(...(lock.queue.length ? ['the first who waits has it: ', named(lock.queue[0].name)] : ['it is free: nobody waits']));
  set(at('ask-result'), '');
  at('ask-yes').disabled = false;
  at('ask').showModal();
}

// check has the dialog say so when the holder is not the one that it names any more.
function check() {
  const lock = locks.get(asked.id);
  if (!asked.sent && (!lock || lock.hold !== asked.hold)) {
    set(at('ask-result'), 'It is no longer held by who you see here.');
    at('ask-yes').disabled = true;
  }
}

async function unlock() {
  const about = asked;
  about.sent = true;
  at('ask-yes').disabled = true;
  let words;
  try {
    const r = await fetch('unlock', {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ id: about.id, hold: about.hold }),
    });
    if (r.ok) {
      if (asked === about) at('ask').close();
      return;
    }
    words = (r.headers.get('Content-Type') || '').startsWith('application/json') ? (await r.json()).words : await r.text();
  } catch (e) {
    words = `No answer: whether it was done is not known (${e.message}).`;
  }
  if (asked === about) set(at('ask-result'), words);
}

at('ask-no').addEventListener('click', () => at('ask').close());
at('ask-yes').addEventListener('click', unlock);
at('ask').addEventListener('close', () => { asked = null; });
at('filter').addEventListener('input', plan);
at('sort').addEventListener('change', plan);
setInterval(() => {
  for (const row of rows.values()) for (const t of row.ticks) t();
  mark();
}, 1000);
listen();
