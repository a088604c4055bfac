// The part of both pages that trains the parity model, and draws its loss, its answers and its state as it goes.
'use strict';

const parity = {recurrent: true, going: null, losses: [], right: [], step: 0, states: null};
const earlier = new Map();  // by whether it was recurrent: `right` of the last model of that kind that was trained
const kStates = 48, kStateBits = 16, kEvery = 5;
const kSteps = 1000;  // that one press of Train adds
const ownBits = Array.from('101100111010001101011101', Number);  // longer than the streams of training

function openTraining() {
  $('train').addEventListener('click', guarded(trainParity));
  $('again').addEventListener('click', guarded(beginParity));
  $('recurrent').addEventListener('change', guarded(beginParity));
  onNewLook(drawParity);
  listBits();
  beginParity();
}

function beginParity() {
  if (parity.right.length > 0) earlier.set(parity.recurrent, parity.right);
  Object.assign(parity, {recurrent: $('recurrent').checked, going: null, losses: [], right: [], step: 0});
  engine.parity.begin(1, parity.recurrent);
  showParity(0);
}

async function trainParity() {
  if (parity.going) {
    parity.going = null;
    return;
  }
  const me = parity.going = {}, first = parity.step, started = performance.now();
  $('train').textContent = 'Pause';
  try {
    while (parity.going === me && parity.step < first + kSteps) {
      const until = performance.now() + 2 * kSlice;
      do {
        parity.losses.push(engine.parity.step());
        ++parity.step;
        if (parity.step % kEvery === 0)
          parity.right.push([parity.step, engine.parity.accuracy(16), engine.parity.accuracy(64)]);
      } while (performance.now() < until && parity.step < first + kSteps);
      showParity(1000 * (parity.step - first) / (performance.now() - started));
      await frame();
    }
  } finally {
    if (parity.going === me) parity.going = null;
    if (!parity.going) $('train').textContent = 'Train';
  }
}

// Shows what the model is now; `speed` in steps a second, or 0 where it does not train.
function showParity(speed) {
  const last = parity.right[parity.right.length - 1];
  $('progress').textContent = `step ${parity.step}` + (speed ? `, ${speed.toFixed(0)} a second` : '') +
      (last ? `: right ${(100 * last[1]).toFixed(1)} % at 16 bits, ${(100 * last[2]).toFixed(1)} % at 64` : '');
  parity.states = parity.recurrent ? engine.parity.states(kStates, kStateBits) : null;
  showAnswers();
  drawParity();
}

// ---- the reader's own stream

// A column for each bit: the bit, which a press flips; whether the ones so far are odd; what the model says.
function listBits() {
  $('bits').replaceChildren(...ownBits.map((_, i) => {
    const cell = document.createElement('div');
    cell.innerHTML = '<button type="button"></button><span></span><small></small>';
    cell.children[0].addEventListener('click', guarded(() => {
      ownBits[i] = 1 - ownBits[i];
      showAnswers();
    }));
    return cell;
  }));
}

function showAnswers() {
  const answers = engine.parity.answers(ownBits);
  const word = odd => (odd ? 'odd' : 'even');
  let odd = false, wrong = 0;
  ownBits.forEach((bit, i) => {
    odd = odd !== (bit === 1);
    const said = answers[i] > 0.5, [button, truth, answer] = $('bits').children[i].children;
    button.textContent = bit;
    button.setAttribute('aria-label', `Bit ${i + 1} is ${bit}: flip it`);
    truth.textContent = word(odd);
    answer.textContent = `${word(said)} ${Math.round(100 * (said ? answers[i] : 1 - answers[i]))} %`;
    answer.className = said === odd ? '' : 'wrong';
    wrong += said === odd ? 0 : 1;
  });
  $('wrong').textContent = wrong === 0 ? 'All answers are right.' : `${wrong} of ${ownBits.length} answers are wrong.`;
}

// ---- the pictures

function drawParity() {
  drawTraining();
  drawStates();
}

function drawTraining() {
  const {context, width, height} = prepared($('curve'));
  const left = 34, right = width - 46, top = 10, bottom = height - 22;
  const before = earlier.get(!parity.recurrent) || [];
  const most = Math.max(200, parity.step), x = step => left + (right - left) * step / most;
  context.strokeStyle = colour('--line');
  context.fillStyle = colour('--soft');
  for (const part of [0, 0.5, 1]) {
    const y = bottom - part * (bottom - top);
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(right, y);
    context.stroke();
    context.fillText((0.8 * part).toFixed(1), 8, y + 4);
    context.fillText(`${100 * part} %`, right + 4, y + 4);
  }
  context.fillText('step', left, height - 6);
  context.fillText(String(most), right - 24, height - 6);
  const line = (points, name, dashes = []) => {
    context.strokeStyle = colour(name);
    context.lineWidth = 2;
    context.setLineDash(dashes);
    context.beginPath();
    for (const [step, part] of points) if (step <= most) context.lineTo(x(step), bottom - Math.min(1, part) * (bottom - top));
    context.stroke();
  };
  line(parity.losses.map((loss, i) => [i + 1, loss / 0.8]), '--soft');
  line(parity.right.map(([step, near]) => [step, near]), '--even');
  line(parity.right.map(([step, , far]) => [step, far]), '--odd');
  line(before.map(([step, near]) => [step, near]), '--even', [4, 4]);
}

function drawStates() {
  const {context, width, height} = prepared($('scatter'));
  const states = parity.states;
  if (!states) {
    context.fillStyle = colour('--soft');
    context.textAlign = 'center';
    context.fillText('Without recurrence there is no state.', width / 2, height / 2);
    return;
  }
  let most = 1e-6;
  for (let i = 0; i < states.length; ++i) if (i % 3 < 2) most = Math.max(most, Math.abs(states[i]));
  context.globalAlpha = 0.6;
  for (let i = 0; i < states.length; i += 3) {
    context.fillStyle = colour(states[i + 2] > 0 ? '--odd' : '--even');
    context.beginPath();
    context.arc(width / 2 + states[i] / most * (width / 2 - 12), height / 2 - states[i + 1] / most * (height / 2 - 12), 2.6, 0, 7);
    context.fill();
  }
}
