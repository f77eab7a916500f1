// A headless chromium, spoken to over its debugging pipe.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-default-apps',
  '--disable-extensions',
  '--disable-dev-shm-usage',
  // Two pages are drawn at once; neither may be slowed down as one in the background.
  '--disable-background-timer-throttling',
  '--disable-backgrounding-occluded-windows',
  '--disable-renderer-backgrounding',
  '--mute-audio',
  '--hide-scrollbars',
  '--proxy-server=direct://',
  // Nothing but this machine is asked for anything.
  '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
  '--remote-debugging-pipe',
];
const STOP_MS = 1500;

function consoleLine(event) {
  if (event.method === 'Runtime.exceptionThrown') {
    const details = event.params.exceptionDetails;
    return `exception: ${details.exception?.description ?? details.text}`;
  }
  if (event.method !== 'Runtime.consoleAPICalled') return null;
  if (!['error', 'warning'].includes(event.params.type)) return null;
  const words = event.params.args.map((arg) => arg.value ?? arg.description ?? '');
  return `${event.params.type}: ${words.join(' ').slice(0, 400)}`;
}

export class Chromium {
  #process;
  #profile = mkdtempSync(path.join(tmpdir(), 'dashboard-preview-'));
  #exited;
  #lastId = 0;
  #waiting = new Map();
  #consoles = new Map();

  constructor(program) {
    const flags = [...FLAGS, `--user-data-dir=${this.#profile}`, 'about:blank'];
    const stdio = ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'];
    this.#process = spawn(program, flags, { stdio });
    this.#exited = new Promise((done) => {
      this.#process.once('exit', (code) => {
        this.#giveUp(new Error(`${program} ended (${code})`));
        done();
      });
      this.#process.once('error', (error) => {
        this.#giveUp(new Error(`cannot start ${program}: ${error.message}`));
        done();
      });
    });
    this.#process.stdio[3].on('error', () => {});
    this.#listen(this.#process.stdio[4]);
  }

  #giveUp(error) {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  #listen(pipe) {
    pipe.setEncoding('utf8');
    let rest = '';
    pipe.on('data', (chunk) => {
      const messages = (rest + chunk).split('\0');
      rest = messages.pop();
      for (const message of messages) this.#receive(JSON.parse(message));
    });
  }

  #receive(message) {
    if (!message.id) {
      const line = consoleLine(message);
      if (line) this.#consoles.get(message.sessionId)?.push(line);
      return;
    }
    const waiter = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.error) waiter?.reject(new Error(message.error.message));
    else waiter?.resolve(message.result);
  }

  send(method, params = {}, sessionId = undefined) {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      this.#waiting.set(id, { resolve, reject });
      if (this.#process.exitCode !== null) this.#giveUp(new Error('chromium has ended'));
      else this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  async newPage() {
    // In a window of its own: a page behind another one is drawn late or never.
    const where = { url: 'about:blank', newWindow: true };
    const { targetId } = await this.send('Target.createTarget', where);
    const attached = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const { sessionId } = attached;
    const lines = [];
    this.#consoles.set(sessionId, lines);
    const send = (method, params) => this.send(method, params, sessionId);
    await Promise.all([send('Runtime.enable'), send('Page.enable')]);
    return new Page(send, lines, async () => {
      this.#consoles.delete(sessionId);
      await this.send('Target.closeTarget', { targetId });
    });
  }

  async stop() {
    await Promise.race([this.send('Browser.close').catch(() => {}), delay(STOP_MS)]);
    await Promise.race([this.#exited, delay(STOP_MS)]);
    if (this.#process.exitCode === null) this.#process.kill('SIGKILL');
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 8, retryDelay: 150 });
  }
}

class Page {
  constructor(send, consoleLines, close) {
    Object.assign(this, { send, consoleLines, close });
  }

  resize(width, height, scale) {
    const size = { width, height, deviceScaleFactor: scale, mobile: false };
    return this.send('Emulation.setDeviceMetricsOverride', size);
  }

  open(url) {
    return this.send('Page.navigate', { url });
  }

  async evaluate(expression) {
    const call = { expression, returnByValue: true, awaitPromise: true };
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', call);
    if (exceptionDetails) {
      throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    }
    return result.value;
  }

  /** The window as a PNG, or what is above `bottom` of it. */
  async picture(width, bottom) {
    const clip = bottom && { x: 0, y: 0, width, height: bottom, scale: 1 };
    const how = { format: 'png', captureBeyondViewport: false, ...(clip && { clip }) };
    return Buffer.from((await this.send('Page.captureScreenshot', how)).data, 'base64');
  }
}
