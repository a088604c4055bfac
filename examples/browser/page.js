// The large page's own part: texts and their states, drawn as they go. The models stand in elements of class "model", in
// base64.
'use strict';

const kLetters = 1500;  // that one press of Continue adds
const kHistory = 400;   // norms that are kept
const kReadAtOnce = 8;  // letters of the reader's text, which may be long

const loaded = new Map();  // by the index of the element
// `going` is the press of Continue that is at work, or null.
const texts = [0, 1].map(which => ({shown: [], length: 0, norms: new Map(), going: null, seed: 1000 * which}));
let chosenModel = 0, chosenText = 0, chosenTensor = '';
const marked = new Set();

function model() {
  if (!loaded.has(chosenModel))
    loaded.set(chosenModel, engine.load(bytesOf(document.querySelectorAll('.model')[chosenModel].textContent)));
  return loaded.get(chosenModel);
}

// ---- texts

// Shows what was read and written: [text, whether the reader wrote it] in turn.
function showText(which) {
  const output = $(`output-${which}`), text = texts[which];
  output.replaceChildren(...text.shown.map(([part, given]) => {
    const element = document.createElement(given ? 'b' : 'span');
    element.textContent = part;
    return element;
  }));
  output.scrollTop = output.scrollHeight;
}

function append(which, part, given) {
  const shown = texts[which].shown, last = shown[shown.length - 1];
  if (last && last[1] === given) last[0] += part;
  else shown.push([part, given]);
}

function begin(which) {
  const text = texts[which], box = $(`prompt-${which}`);
  if (box.value === '') box.value = box.defaultValue;
  Object.assign(text, {shown: [], length: 0, norms: new Map(), going: null});
  ++text.seed;
  engine.restart(model(), which);
  showText(which);
  showState();
}

// Reads what was typed and goes on from it. What is typed and not yet read at a stop goes back to its box.
async function go(which) {
  const text = texts[which], button = document.querySelector(`[data-go="${which}"]`);
  if (text.going) {
    text.going = null;
    return;
  }
  const used = model(), seed = text.seed;
  const box = $(`prompt-${which}`), typed = Array.from(box.value || (text.length === 0 ? '\n' : ''));
  const ids = used.tokenizer.encode(typed.join(''));
  box.value = '';
  chooseText(which);
  const me = text.going = {};
  button.textContent = 'Stop';
  const started = performance.now();
  let read = 0, letters = 0;
  try {
    while (text.going === me && letters < kLetters) {
      const until = performance.now() + kSlice;
      do {
        if (read < ids.length) {
          const next = ids.slice(read, read + kReadAtOnce);
          engine.read(used, which, next);
          append(which, next.map(used.tokenizer.decode).join(''), true);
          read += next.length;
          text.length += next.length;
          continue;
        }
        const id = engine.draw(used, which, Number($('temperature').value), seed);
        append(which, used.tokenizer.decode(id), false);
        engine.read(used, which, [id]);
        ++letters;
        ++text.length;
      } while (performance.now() < until && letters < kLetters);
      showText(which);
      if (which === chosenText) showState();
      $('speed').textContent = `${Math.round(1000 * (read + letters) / (performance.now() - started))} letters a second`;
      await frame();
    }
  } finally {
    // Not where the text was begun anew.
    if (read < typed.length && text.seed === seed) box.value = typed.slice(read).join('') + box.value;
    if (text.going === me) text.going = null;
    if (!text.going) button.textContent = 'Continue';
  }
}

function chooseText(which) {
  chosenText = which;
  document.querySelector(`[name=text][value="${which}"]`).checked = true;
  $('which').textContent = 'AB'[which];
  showState();
}

// ---- the state

// Shows the state of the chosen text: its parts, and the numbers of the chosen one.
function showState() {
  const about = document.querySelectorAll('.model')[chosenModel].dataset, text = texts[chosenText];
  let views = engine.views(model(), chosenText, chosenTensor);
  if (views.length > 0 && !views.some(view => view.name === chosenTensor)) {
    chosenTensor = views.some(view => view.name === about.part) ? about.part : views[0].name;
    views = engine.views(model(), chosenText, chosenTensor);
  }

  listParts(views);
  noteNorms(text, views);
  views.forEach((view, i) => showPart($('tensors').children[i], view, text.norms.get(view.name)));
  showNumbers(views.find(view => view.name === chosenTensor));

  $('parts').textContent = about.parts;
  $('no-state').hidden = views.length > 0;
  for (const button of ['forget', 'freeze', 'swap']) $(button).disabled = views.length === 0;
  $('freeze').textContent = views.some(view => view.frozen && marked.has(view.name)) ? 'Let go' : 'Freeze';
}

// Makes the list of the parts, all of them marked, where it is not yet that of these.
function listParts(views) {
  const list = $('tensors'), names = views.map(view => view.name).join('\n');
  if (list.dataset.names === names) return;
  list.dataset.names = names;

  marked.clear();
  for (const view of views) marked.add(view.name);
  list.replaceChildren(...views.map(view => partOf(view.name)));
}

// An item of the list: a box that marks the part, and a button, as wide as the item, that shows its numbers.
function partOf(name) {
  const item = document.createElement('li');
  item.innerHTML = '<input type="checkbox" checked><button type="button"><span></span>' +
      '<canvas width="168" height="52"></canvas></button>';
  const [box, button] = item.children;

  box.setAttribute('aria-label', `Mark ${name}`);
  box.addEventListener('change', guarded(() => {
    if (box.checked) marked.add(name);
    else marked.delete(name);
    showState();
  }));
  button.addEventListener('click', guarded(() => {
    chosenTensor = name;
    showState();
  }));
  return item;
}

// Adds the norms of the parts as they are now: [length of the text, norm], where one of the two has changed.
function noteNorms(text, views) {
  for (const view of views) {
    if (!text.norms.has(view.name)) text.norms.set(view.name, []);
    const norms = text.norms.get(view.name);
    const [length, norm] = norms.length > 0 ? norms[norms.length - 1] : [];
    if (length !== text.length || norm !== view.norm) norms.push([text.length, view.norm]);
    if (norms.length > kHistory) norms.shift();
  }
}

function showPart(item, view, norms) {
  const button = item.children[1], [words, canvas] = button.children;
  const shown = view.name === chosenTensor;
  item.className = shown ? 'shown' : '';
  button.setAttribute('aria-pressed', shown);
  words.textContent =
      `${view.name}  ${view.rows} × ${view.columns}, norm ${view.norm.toPrecision(3)}${view.frozen ? ', frozen' : ''}`;
  drawCurve(canvas, norms);
}

function showNumbers(view) {
  $('shown').textContent = view ? view.name : '\u00a0';
  if (view) {
    drawHeatmap(view);
  } else {
    $('heatmap').width = $('heatmap').height = 1;  // empty
    $('scale').textContent = '';
  }
}

// The norms of a part as a line, from 0 at the lower edge to the highest at the upper one.
function drawCurve(canvas, norms) {
  const context = canvas.getContext('2d');
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (norms.length < 2) return;

  const highest = Math.max(...norms.map(([, norm]) => norm), 1e-9);
  const edge = 3;  // so that the line is seen whole at both
  const x = i => i * canvas.width / (norms.length - 1);
  const y = norm => canvas.height - edge - norm / highest * (canvas.height - 2 * edge);

  context.strokeStyle = colour('--accent');
  context.lineWidth = 3;
  context.beginPath();
  norms.forEach(([, norm], i) => context.lineTo(x(i), y(norm)));
  context.stroke();
}

// Rows are rows; a single row is cut into lines. Colours end at three times the root mean square.
function drawHeatmap(view) {
  const width = view.rows === 1 ? Math.ceil(Math.sqrt(view.columns * 4)) : view.columns;
  const height = Math.ceil(view.values.length / width);
  const most = 3 * view.norm / Math.sqrt(view.values.length) || 1;
  const canvas = $('heatmap');
  canvas.width = width;
  canvas.height = height;
  canvas.style.height = `${Math.max(90, Math.min(360, canvas.clientWidth * height / width))}px`;
  const context = canvas.getContext('2d'), image = context.createImageData(width, height);
  const low = colour('--low').split(',').map(Number), high = colour('--high').split(',').map(Number);
  view.values.forEach((value, i) => {
    const side = value < 0 ? low : high;
    image.data.set([...side, 255 * Math.min(1, Math.abs(value) / most)], 4 * i);
  });
  context.putImageData(image, 0, 0);
  $('scale').innerHTML = `<span><i style="background:rgb(${colour('--low')})"></i>−${most.toPrecision(2)} or less</span>
    <span><i style="background:rgb(${colour('--high')})"></i>${most.toPrecision(2)} or more</span> <span>empty: 0</span>`;
}

function change(action) {
  return guarded(() => {
    const present = new Set(engine.views(model(), chosenText, '').map(view => view.name));
    for (const name of marked) if (present.has(name)) action(name);
    showState();
  });
}

// ---- the beginning

function listModels() {
  $('models').replaceChildren(...Array.from(document.querySelectorAll('.model'), (element, i) => {
    const label = document.createElement('label');
    label.innerHTML = `<input type="radio" name="model" value="${i}"${i === 0 ? ' checked' : ''}> <b></b><small></small>`;
    label.children[1].textContent = element.dataset.name;
    label.children[2].textContent = element.dataset.about;
    label.children[0].addEventListener('change', guarded(() => {
      chosenModel = i;
      chosenTensor = '';
      $('tensors').dataset.names = '';
      for (const which of [0, 1]) begin(which);
      $('speed').textContent = `${Math.round(model().parameters / 1000)} thousand parameters`;
    }));
    return label;
  }));
}

const ready = guarded(async () => {
  engine = await compiledEngine();
  listModels();
  for (const which of [0, 1]) {
    document.querySelector(`[data-go="${which}"]`).addEventListener('click', guarded(() => go(which)));
    document.querySelector(`[data-new="${which}"]`).addEventListener('click', guarded(() => begin(which)));
    document.querySelector(`[name=text][value="${which}"]`).addEventListener('change', guarded(() => chooseText(which)));
  }
  $('temperature').addEventListener('input', () => {
    $('temperature-value').textContent = Number($('temperature').value).toFixed(2);
  });
  $('forget').addEventListener('click', change(name => engine.forget(model(), chosenText, name)));
  $('freeze').addEventListener('click', guarded(() => {
    const on = $('freeze').textContent === 'Freeze';
    return change(name => engine.freeze(model(), chosenText, name, on))();
  }));
  $('swap').addEventListener('click', guarded(() => {
    if (texts.some(text => text.length === 0)) throw new Error('swap: both texts must have begun (press Continue at each)');
    engine.swap(model());
    showState();
  }));
  onNewLook(showState);
  $('speed').textContent = `${Math.round(model().parameters / 1000)} thousand parameters`;
  openTraining();
  showState();
  document.body.dataset.ready = 'yes';
});
ready();
