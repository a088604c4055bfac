// node open_page.js PAGE [PICTURES]: opens the large page from disk in Chromium and uses it. It prints how many letters a second
// each model wrote. With a folder it leaves pictures there: of each model, and light and dark, of a phone's width and a wide one.
'use strict';
const {value, until, expect, press, click, picture, run} = require('./chromium.js');

run(async () => {
  const count = await value("document.querySelectorAll('.model').length");
  for (let i = 0; i < count; ++i) {
    await click(`#models input[value="${i}"]`);
    await click('[data-go="0"]');
    await until('texts[0].length > 300');
    console.log(`${await value("document.querySelectorAll('.model')[" + i + "].dataset.name")}: ${await value("$('speed').textContent")}`);
    await click('[data-go="0"]');
    await until('!texts[0].going');
    await click('[data-go="1"]');
    await until('texts[1].length > 100');
    await click('[data-go="1"]');
    await until('!texts[1].going');
    await picture(`model-${i}.png`, 1000);
    // Swapping the states twice changes nothing; forgetting sets norms to zero; what is frozen stays.
    const norms = "engine.views(model(), 1, '').map(view => view.norm).join()";
    const before = await value(norms);
    await click('#swap');
    await expect(`${norms} !== '${before}'`);
    await click('#swap');
    await expect(`${norms} === '${before}'`);
    await click('#freeze');
    await value('engine.read(model(), 1, [1, 2, 3])');
    await expect(`${norms} === '${before}'`);
    await click('#freeze');
    await value('engine.read(model(), 1, [1, 2, 3])');
    await expect(`${norms} !== '${before}'`);
    await click('#forget');
    await expect("engine.views(model(), 1, '').every(view => view.norm === 0)");
    // With keys alone: from a part's box to its button, which shows its numbers, and to the next part's box, which unmarks it.
    await value("document.querySelector('#tensors input').focus()");
    await press('Tab', 9);
    await press('Enter', 13, '\r');
    const name = "engine.views(model(), 1, '')[0].name";
    await expect(`chosenTensor === ${name} && $('shown').textContent === ${name}`);
    await expect("document.querySelector('#tensors button').getAttribute('aria-pressed') === 'true'");
    await press('Tab', 9);
    await press(' ', 32, ' ');
    await expect("marked.size === engine.views(model(), 1, '').length - 1");
    await press(' ', 32, ' ');
    await expect("marked.size === engine.views(model(), 1, '').length");
    await expect("$('problem').hidden");
  }
  await click('#models input[value="0"]');
  // What is typed and not yet read at a stop goes back; what the vocabulary lacks is read as blanks.
  await value("$('prompt-0').value = '\u2603'.repeat(100000)");
  await click('[data-go="0"]');
  await until('texts[0].length > 0');
  await click('[data-go="0"]');
  await until(`document.querySelector('[data-go="0"]').textContent === 'Continue'`);
  await expect("texts[0].length + $('prompt-0').value.length === 100000");
  await expect("/^ +$/.test($('output-0').textContent)");
  await value("$('prompt-0').value = ''");
  await click('[data-new="0"]');
  await expect("$('prompt-0').value === $('prompt-0').defaultValue && $('heatmap').width === 1");
  await click('[data-go="0"]');
  await click('#train');
  await until('parity.step >= 300 && !texts[0].going', 300);
  await click('#train');
  console.log(`parity: ${await value("$('progress').textContent")}`);
  await expect('parity.right[parity.right.length - 1][1] > 0.9');
});
