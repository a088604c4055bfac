// node open_parity.js PAGE [PICTURES]: opens the small page from disk in Chromium, trains the model with recurrence and without,
// and flips a bit. Pictures as open_page.js.
'use strict';
const {value, until, expect, click, picture, run} = require('./chromium.js');

const right = 'parity.right[parity.right.length - 1][1]';
async function train(steps) {
  await click('#train');
  await until(`parity.step >= ${steps}`, 300);
  await click('#train');
  await until("!parity.going && $('train').textContent === 'Train'");
  console.log(`recurrence ${await value('parity.recurrent')}: ${await value("$('progress').textContent")}`);
}

run(async () => {
  await expect("parity.step === 0 && parity.states.length > 0 && document.querySelectorAll('.wrong').length > 0");
  await train(20);
  await picture('parity-begun.png', 1000);
  await train(200);
  await expect(`${right} > 0.99 && document.querySelectorAll('.wrong').length === 0`);
  await expect("$('wrong').textContent === 'All answers are right.'");
  // A flipped bit turns the answer behind it and all later ones around, and the model follows.
  const truths = "Array.from(document.querySelectorAll('#bits span'), element => element.textContent)";
  const before = await value(truths);
  await click('#bits div:nth-child(5) button');
  const after = await value(truths);
  if (!after.every((word, i) => (word !== before[i]) === (i >= 4))) throw new Error(`bit 5 flipped: ${before}, then ${after}`);
  await expect("document.querySelectorAll('.wrong').length === 0");
  await click('#recurrent');
  await expect('parity.step === 0 && !parity.recurrent && parity.states === null');
  await train(200);
  await expect(`${right} < 0.7`);
  await picture('parity-off.png', 1000);
  await click('#recurrent');
  await train(20);
});
