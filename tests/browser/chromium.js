// A page in Chromium without a screen, used as a reader would, and what asks the browser. The script that requires it is called
// with the page's file, and with a folder where pictures are wanted. Where there is no Chromium it says so.
'use strict';
const {spawn, execSync} = require('child_process');
const fs = require('fs'), os = require('os'), path = require('path');
const [, , page, pictures] = process.argv;  // of the script that requires this one

const name = ['chromium', 'chromium-browser', 'google-chrome'].find(one => {
  try {
    return execSync(`command -v ${one}`, {stdio: 'pipe'}).length > 0;
  } catch {
    return false;
  }
});
if (!name) {
  console.log('not opened: there is no browser (apt-get install chromium)');
  process.exit(0);
}
const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'eddy-page-'));
const chromium = spawn(name,
    ['--headless', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', `--user-data-dir=${profile}`, 'about:blank'],
    {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'], env: {...process.env, HOME: profile}});

// The browser's protocol: JSON between zero bytes, requests into pipe 3, answers from pipe 4.
let last = 0, session, text = '', ended = false;
const waiting = new Map(), problems = [];
for (const pipe of [3, 4]) chromium.stdio[pipe].on('error', () => {});  // the browser has ended, which `exited` tells
chromium.stdio[4].setEncoding('utf8');
chromium.stdio[4].on('data', data => {
  const parts = (text + data).split('\0');
  text = parts.pop();
  for (const part of parts) {
    const message = JSON.parse(part);
    if (message.method === 'Runtime.exceptionThrown') problems.push(message.params.exceptionDetails.text);
    if (message.method === 'Network.requestWillBeSent' && /^https?:/.test(message.params.request.url))
      problems.push(`the page asked for ${message.params.request.url}`);
    if (!waiting.has(message.id)) continue;
    const [resolve, reject] = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.error) reject(new Error(message.error.message));
    else resolve(message.result);
  }
});
const exited = new Promise(resolve => chromium.on('exit', resolve)).then(() => {
  ended = true;
  for (const [, reject] of waiting.values()) reject(new Error('the browser ended'));
});
function ask(method, params = {}) {
  return new Promise((resolve, reject) => {
    if (ended) return reject(new Error('the browser ended'));
    waiting.set(++last, [resolve, reject]);
    chromium.stdio[3].write(JSON.stringify({id: last, method, params, sessionId: session}) + '\0');
  });
}
async function value(expression) {
  const answer = await ask('Runtime.evaluate', {expression, awaitPromise: true, returnByValue: true});
  if (answer.exceptionDetails) throw new Error(`${expression}: ${JSON.stringify(answer.exceptionDetails.exception)}`);
  return answer.result.value;
}
async function until(expression, seconds = 120) {
  for (let i = 0; i < 10 * seconds; ++i) {
    if (await value(expression)) return;
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  throw new Error(`after ${seconds} s it does not hold that ${expression}; the page says: ${await value("$('problem').textContent")}`);
}
async function expect(expression) {
  if (!await value(expression))
    throw new Error(`it does not hold that ${expression}; the page says: ${await value("$('problem').textContent")}`);
}
// Presses a key as a keyboard does.
async function press(key, code, text) {
  for (const type of ['keyDown', 'keyUp'])
    await ask('Input.dispatchKeyEvent', {type, key, code: key === ' ' ? 'Space' : key, windowsVirtualKeyCode: code, text: type === 'keyDown' ? text : undefined});
}
const click = selector => value(`document.querySelector('${selector}').click()`);

// Leaves a picture of the whole page, where pictures are wanted.
async function picture(file, width) {
  if (!pictures) return;
  const {cssContentSize} = await ask('Page.getLayoutMetrics');
  const {data} = await ask('Page.captureScreenshot',
      {captureBeyondViewport: true, clip: {x: 0, y: 0, width, height: cssContentSize.height, scale: 1}});
  fs.writeFileSync(path.join(pictures, file), Buffer.from(data, 'base64'));
}

// Opens the page and waits until it is ready.
async function open() {
  const {targetId} = await ask('Target.createTarget', {url: 'about:blank'});
  ({sessionId: session} = await ask('Target.attachToTarget', {targetId, flatten: true}));
  for (const domain of ['Runtime', 'Page', 'Network']) await ask(`${domain}.enable`);
  await ask('Emulation.setDeviceMetricsOverride', {width: 1000, height: 900, deviceScaleFactor: 1, mobile: false});
  await ask('Page.navigate', {url: 'file://' + path.resolve(page)});
  await until("document.body && document.body.dataset.ready === 'yes' || document.getElementById('problem') && !document.getElementById('problem').hidden");
}

// Looks at the page in light and dark, at a phone's width and a wide one: nothing scrolls sideways.
async function look() {
  for (const scheme of ['light', 'dark'])
    for (const width of [400, 1400]) {
      await ask('Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: scheme}]});
      await ask('Emulation.setDeviceMetricsOverride', {width, height: 900, deviceScaleFactor: 1, mobile: false});
      await value("new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve, 100)))");
      const wide = await value('document.documentElement.scrollWidth');
      if (wide > width) throw new Error(`at ${width} pixels the page scrolls sideways, to ${wide}`);
      await picture(`${path.basename(page, '.html')}-${scheme}-${width}.png`, width);
    }
}

// Opens the page, uses it by `use`, looks at it, and ends the script: with status 1 where something fails.
async function run(use) {
  let status = 0;
  try {
    await open();
    await use();
    await look();
    if (problems.length > 0) throw new Error(problems.join('; '));
  } catch (error) {
    console.error(error.message);
    status = 1;
  }
  chromium.kill();
  await exited;
  fs.rmSync(profile, {recursive: true, force: true, maxRetries: 10});  // its other processes may end later
  process.exit(status);
}

module.exports = {value, until, expect, press, click, picture, run};
