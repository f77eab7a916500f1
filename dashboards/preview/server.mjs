// Serves dist/, each drawing's configuration, and Prometheus under the same origin.
import { existsSync, readFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const DIST = path.join(path.dirname(fileURLToPath(import.meta.url)), 'dist');
const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
  '.woff': 'font/woff',
};

async function readBody(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function answerJson(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(Buffer.isBuffer(body) ? body : JSON.stringify(body));
}

async function passOn(request, response, prometheus, target) {
  const post = request.method === 'POST';
  const options = { method: request.method };
  if (post) {
    options.headers = { 'content-type': request.headers['content-type'] };
    options.body = await readBody(request);
  }
  try {
    const answer = await fetch(prometheus.replace(/\/$/, '') + target, options);
    answerJson(response, answer.status, Buffer.from(await answer.arrayBuffer()));
  } catch (error) {
    const reason = `${prometheus}: ${error.cause?.code ?? error.message}`;
    answerJson(response, 502, { status: 'error', errorType: 'unreachable', error: reason });
  }
}

export class PreviewServer {
  #jobs = new Map();
  #server = http.createServer((request, response) => this.#answer(request, response));

  async start() {
    await new Promise((ready) => this.#server.listen(0, '127.0.0.1', ready));
  }

  /** The address of the page that draws this configuration. */
  add(id, config, prometheus) {
    this.#jobs.set(String(id), { config, prometheus, missing: [] });
    return `http://127.0.0.1:${this.#server.address().port}/?job=${id}`;
  }

  /** Forgets a drawing; says which files its page asked for in vain. */
  remove(id) {
    const { missing } = this.#jobs.get(String(id));
    this.#jobs.delete(String(id));
    return missing;
  }

  stop() {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #answer(request, response) {
    const url = new URL(request.url, 'http://preview');
    const [, kind, id] = url.pathname.split('/');
    const job = this.#jobs.get(id);
    if (kind === 'config' && job) return answerJson(response, 200, job.config);
    if (kind === 'prom' && job) {
      const target = url.pathname.slice(`/prom/${id}`.length) + url.search;
      return passOn(request, response, job.prometheus, target);
    }
    return this.#answerFile(request, response, url.pathname);
  }

  #answerFile(request, response, name) {
    const file = path.join(DIST, name === '/' ? 'index.html' : path.normalize(name));
    if (!file.startsWith(DIST + path.sep) || !existsSync(file)) {
      const referer = request.headers.referer ?? '';
      const id = URL.canParse?.(referer) ? new URL(referer).searchParams.get('job') : null;
      this.#jobs.get(id)?.missing.push(name);
      return response.writeHead(404).end();
    }
    const type = TYPES[path.extname(file)] ?? 'application/octet-stream';
    response.writeHead(200, { 'content-type': type, 'cache-control': 'max-age=3600' });
    return response.end(readFileSync(file));
  }
}
