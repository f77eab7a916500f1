// Dashboard variables: datasource, query, custom, textbox, constant, interval.
import { sampleNumber } from './prometheus.js';

const ALL = '$__all';
const VARIABLE = /\$(\w+)|\[\[(\w+?)(?::(\w+))?\]\]|\$\{(\w+)(?:\.([^:^}]+))?(?::([^}]+))?\}/g;

const SPECIAL = /[\\^$*+?.()|[\]{}]/g;
// Within PromQL's double quotes a backslash is written twice; the format `regex` writes it once.
const escapeQuoted = (value) => String(value).replace(SPECIAL, '\\\\$&');
const escapeRegex = (value) => String(value).replace(SPECIAL, '\\$&');
const anyOf = (values, escape = escapeQuoted) =>
  values.length > 1 ? `(${values.map(escape).join('|')})` : escape(values[0] ?? '');

function toRegex(text) {
  const parts = /^\/(.*)\/([gimsuy]*)$/s.exec(text);
  if (!parts) return new RegExp(`^${text}$`);
  return new RegExp(parts[1], parts[2].replace('g', ''));
}

const up = (key) => (a, b) => (key(a.text) < key(b.text) ? -1 : 1);
const down = (compare) => (a, b) => compare(b, a);
const byText = up((text) => text);
const byNumber = (a, b) => parseFloat(a.text) - parseFloat(b.text);
const byLowerCase = up((text) => text.toLowerCase());
const naturally = (a, b) => a.text.localeCompare(b.text, undefined, { numeric: true });
const SORTS = {
  1: byText,
  2: down(byText),
  3: byNumber,
  4: down(byNumber),
  5: byLowerCase,
  6: down(byLowerCase),
  7: naturally,
  8: down(naturally),
};

function toList(value) {
  if (value === undefined || value === null || value === '') return [];
  return [].concat(value);
}

const same = (text) => ({ text, value: text });

function customOptions(text) {
  return text
    .split(/(?<!\\),/)
    .map((part) => part.trim().replace(/\\,/g, ','))
    .filter(Boolean)
    .map((part) => {
      const named = /^(.+?)\s:\s(.+)$/.exec(part);
      return named ? { text: named[1].trim(), value: named[2].trim() } : same(part);
    });
}

function filterOptions(options, regex) {
  const seen = new Set();
  return options.flatMap((option) => {
    const match = regex.exec(option.text);
    if (!match) return [];
    const { value: named, text: namedText } = match.groups ?? {};
    const value = named ?? namedText ?? match[1] ?? option.value;
    const text = namedText ?? named ?? match[1] ?? option.text;
    if (seen.has(value)) return [];
    seen.add(value);
    return [{ text, value }];
  });
}

export class Variables {
  #state = {};

  constructor(list, { range, datasources, overrides, prometheus, issue }) {
    Object.assign(this, { list, range, datasources, overrides, prometheus, issue });
  }

  get(name) {
    return this.#state[name];
  }

  /** The selected values, with All spelled out. */
  values(name) {
    const state = this.#state[name];
    if (!state) return [];
    if (!state.values.includes(ALL)) return state.values;
    return state.options.map(({ value }) => value).filter((value) => value !== ALL);
  }

  text(name, value) {
    const option = this.#state[name]?.options.find((one) => one.value === value);
    return option?.text ?? value;
  }

  texts(name) {
    const { values } = this.#state[name];
    return values.includes(ALL) ? ['All'] : values.map((value) => this.text(name, value));
  }

  async load() {
    // In order: a later variable may use an earlier one.
    for (const definition of this.list) await this.#load(definition);
  }

  async #load(definition) {
    const { name, type, includeAll, multi, query } = definition;
    const issue = (code, message) => this.issue(code, `variable ${name}: ${message}`);
    let options = [];
    try {
      options = await this.#options(definition);
    } catch (error) {
      issue('variable-error', error.message);
    }
    if (includeAll) options.unshift({ text: 'All', value: ALL });
    const asked = this.overrides[name];
    let values = asked === undefined ? toList(definition.current?.value) : [].concat(asked);
    if (includeAll && values.length === 1 && values[0] === 'All') values = [ALL];
    if (type === 'textbox' || type === 'constant') {
      if (!values.length) values = [query ?? ''];
      options = values.map(same);
    } else {
      const known = values.filter((value) => options.some((one) => one.value === value));
      if (asked !== undefined && !known.length) {
        issue('variable-value-unknown', JSON.stringify(values));
      }
      values = known.length ? known : options.slice(0, 1).map(({ value }) => value);
      if (!multi) values = values.slice(0, 1);
    }
    const valid = options.some(({ value }) => value !== ALL);
    this.#state[name] = { definition, options, values, empty: !valid };
  }

  async #options(definition) {
    const { type, regex, sort } = definition;
    const query = definition.query?.query ?? definition.query ?? '';
    let options;
    if (type === 'datasource') {
      const usable = this.datasources.filter((source) => source.type === query);
      options = usable.map(({ name, uid }) => ({ text: name, value: uid }));
    } else if (type === 'custom') {
      options = customOptions(query);
    } else if (type === 'interval') {
      options = query.split(',').map((part) => same(part.trim()));
    } else if (type === 'query') {
      options = (await this.#ask(this.interpolate(query).trim())).map(same);
    } else if (type === 'textbox' || type === 'constant') {
      options = [same(query)];
    } else {
      throw new Error(`type ${type} is not supported by this preview`);
    }
    if (regex && type !== 'custom') {
      options = filterOptions(options, toRegex(this.interpolate(regex)));
    }
    if (type === 'query' && SORTS[sort]) options.sort(SORTS[sort]);
    return options;
  }

  async #ask(query) {
    const start = this.range.from.valueOf() / 1000;
    const end = this.range.to.valueOf() / 1000;
    const get = async (path, params) => (await this.prometheus.get(path, params)).data;
    if (query === 'label_names()') return get('labels', { start, end });
    const values = /^label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\)$/s.exec(query);
    if (values) {
      const [, selector, label] = values;
      const wanted = selector ? { 'match[]': selector.trim(), start, end } : { start, end };
      return get(`label/${label}/values`, wanted);
    }
    const metrics = /^metrics\((.+)\)$/.exec(query);
    if (metrics) {
      const names = await get('label/__name__/values', { start, end });
      return names.filter((name) => new RegExp(metrics[1]).test(name));
    }
    const result = /^query_result\((.+)\)$/s.exec(query);
    if (result) {
      const data = await get('query', { query: result[1], time: end });
      const scalar = data.resultType === 'scalar';
      return (scalar ? [{ metric: {}, value: data.result }] : data.result).map(
        ({ metric: { __name__: name = '', ...labels }, value: [time, value] }) => {
          const pairs = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
          const ms = Math.round(time * 1000);
          return `${name}{${pairs.join(',')}} ${sampleNumber(value)} ${ms}`;
        },
      );
    }
    throw new Error(`cannot read its query: ${query}`);
  }

  /**
   * Fill in variables. kind: 'prom' escapes for PromQL as the Prometheus data source does,
   * 'raw' does not, 'text' takes what is shown, joined with +.
   */
  interpolate = (text, scoped = {}, kind = 'text') => {
    if (typeof text !== 'string' || !/[$[]/.test(text)) return text ?? '';
    return text.replace(VARIABLE, (whole, plain, old, oldFormat, braced, path, format) => {
      const name = plain ?? old ?? braced;
      const filled = this.#fill(name, path, oldFormat ?? format, scoped, kind);
      return filled ?? whole;
    });
  };

  #fill(name, path, format, scoped, kind) {
    const own = scoped[name];
    if (own !== undefined) {
      if (path) {
        const keys = path.split(/[.[\]"']+/).filter(Boolean);
        return keys.reduce((value, key) => value?.[key], own.value);
      }
      if (typeof own.value === 'function') return own.value(format);
      const values = [].concat(own.value);
      const texts = [].concat(own.text ?? own.value);
      return formatValues(format, { values, texts, multi: false, kind });
    }
    if (name === '__from' || name === '__to') {
      const time = name === '__from' ? this.range.from : this.range.to;
      if (format === 'date:seconds') return Math.floor(time.valueOf() / 1000);
      return format?.startsWith('date') ? time.toISOString() : time.valueOf();
    }
    const state = this.#state[name];
    if (!state) return undefined;
    const { allValue, multi, includeAll } = state.definition;
    if (state.values.includes(ALL) && allValue && format !== 'text') return allValue;
    const values = this.values(name);
    const texts = this.texts(name);
    return formatValues(format, { values, texts, multi: multi || includeAll, kind });
  }
}

const FORMATS = {
  raw: ({ values }) => values.join(','),
  csv: ({ values }) => values.join(','),
  pipe: ({ values }) => values.join('|'),
  text: ({ texts }) => texts.join(' + '),
  queryparam: ({ values }) => encodeURIComponent(values.join(',')),
  percentencode: ({ values }) => encodeURIComponent(values.join(',')),
  json: ({ values }) => JSON.stringify(values.length === 1 ? values[0] : values),
  singlequote: ({ values }) => values.map((value) => `'${value}'`).join(','),
  doublequote: ({ values }) => values.map((value) => `"${value}"`).join(','),
  glob: ({ values }) => (values.length > 1 ? `{${values.join(',')}}` : (values[0] ?? '')),
  regex: ({ values }) => anyOf(values, escapeRegex),
};

function formatValues(format, state) {
  if (format in FORMATS) return FORMATS[format](state);
  const { values, texts, multi, kind } = state;
  if (kind === 'text') return texts.join(' + ');
  if (kind !== 'prom') return values.join(',');
  return multi || values.length > 1 ? anyOf(values) : String(values[0] ?? '');
}
