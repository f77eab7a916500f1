// The dashboard's page: top bar, controls, panels in their frames.
import { LoadingState, dateTimeFormat } from '@grafana/data';
import { Icon, PanelChrome } from '@grafana/ui';
import { Component } from 'react';

import { eventsFor } from './annotations.js';
import { PADDING, CELL, GAP, columnWidth, pixelHeight, pixelWidth } from './layout.js';
import { components, drawsNoValue } from './panels/index.js';

export const TOP_BAR = 40;
export const CONTROLS = 44;
const HIDE_LABEL = 1;
const HIDE_VARIABLE = 2;

class CrashGuard extends Component {
  state = {};

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidCatch(error) {
    this.props.issue('render-crash', String(error?.message ?? error));
  }

  render() {
    if (!this.state.error) return this.props.children;
    return <div style={{ padding: 16 }}>⚠ {String(this.state.error.message)}</div>;
  }
}

function Row({ prepared, env, position }) {
  const { panel } = prepared;
  const style = { display: 'flex', alignItems: 'center', gap: 8, fontSize: 16, fontWeight: 500 };
  const secondary = { fontSize: 12, color: env.theme.colors.text.secondary };
  return (
    <div style={{ ...position, ...style }}>
      <Icon name={panel.collapsed ? 'angle-right' : 'angle-down'} />
      {prepared.title}
      {panel.collapsed && <span style={secondary}>({panel.panels?.length ?? 0} panels)</span>}
    </div>
  );
}

function Content({ prepared, env, width, height }) {
  const { panel, frames, fieldConfig, error, issue } = prepared;
  const color = env.theme.colors.text.secondary;
  const Drawing = components[panel.type];
  if (!Drawing) return <div style={{ padding: 16, color }}>{error}</div>;
  if (!frames.length && !drawsNoValue.has(panel.type)) {
    const middle = { display: 'flex', alignItems: 'center', justifyContent: 'center' };
    const style = { ...middle, height: '100%', fontSize: 18, textAlign: 'center', color };
    return <div style={style}>{fieldConfig?.defaults?.noValue || 'No data'}</div>;
  }
  const events = eventsFor(env.annotations, panel.id);
  const ctx = { ...env, ...prepared, events, width, height };
  return (
    <CrashGuard issue={issue}>
      <Drawing ctx={ctx} />
    </CrashGuard>
  );
}

function Panel({ prepared, env, index }) {
  const { panel, x, y, w, h, error } = prepared;
  const width = pixelWidth(w, env.config.width);
  const height = pixelHeight(h);
  const left = x * (columnWidth(env.config.width) + GAP);
  const position = { position: 'absolute', left, top: y * (CELL + GAP), width, height };
  if (panel.type === 'row') return <Row {...{ prepared, env, position }} />;
  const links = panel.links?.length > 0 && (
    <span style={{ padding: '0 6px', color: env.theme.colors.text.secondary }}>
      <Icon name="external-link-alt" />
    </span>
  );
  return (
    <div style={position} data-panel={index}>
      <PanelChrome
        width={width}
        height={height}
        title={prepared.title}
        description={panel.description && env.vars.interpolate(panel.description)}
        displayMode={panel.transparent ? 'transparent' : 'default'}
        loadingState={error ? LoadingState.Error : LoadingState.Done}
        statusMessage={error ?? undefined}
        titleItems={links || undefined}
      >
        {(innerWidth, innerHeight) => (
          <div data-content style={{ width: innerWidth, height: innerHeight }}>
            <Content {...{ prepared, env }} width={innerWidth} height={innerHeight} />
          </div>
        )}
      </PanelChrome>
    </div>
  );
}

function boxStyle(theme) {
  return {
    display: 'flex',
    alignItems: 'center',
    gap: 6,
    height: 32,
    padding: '0 8px',
    fontSize: 14,
    whiteSpace: 'nowrap',
    border: `1px solid ${theme.colors.border.medium}`,
    borderRadius: theme.shape.radius.default,
    background: theme.components.input.background,
  };
}

function VariableControl({ definition, env }) {
  const { name, label, hide } = definition;
  const box = boxStyle(env.theme);
  const background = env.theme.colors.background.secondary;
  const labelStyle = { ...box, background, borderRight: 0, fontWeight: 500, fontSize: 12 };
  return (
    <span style={{ display: 'flex' }}>
      {hide !== HIDE_LABEL && <span style={labelStyle}>{label || name}</span>}
      <span style={box}>
        {env.vars.texts(name).join(' + ') || '\u00a0'} <Icon name="angle-down" />
      </span>
    </span>
  );
}

function rangeText({ config, range, timeZone }) {
  if (config.from.startsWith('now')) return `${config.from} to ${config.to}`;
  const text = (time) => dateTimeFormat(time, { timeZone });
  return `${text(range.from)} to ${text(range.to)}`;
}

function Controls({ env, dashboard }) {
  const { theme, vars } = env;
  const button = { ...boxStyle(theme), background: theme.colors.secondary.main };
  const line = { display: 'flex', flexWrap: 'wrap', gap: 8, marginBottom: 12, minHeight: 32 };
  const toggles = (dashboard.annotations?.list ?? []).filter((one) => !one.builtIn && !one.hide);
  return (
    <div style={line} data-controls>
      {vars.list
        .filter(({ hide }) => hide !== HIDE_VARIABLE)
        .map((definition) => (
          <VariableControl key={definition.name} {...{ definition, env }} />
        ))}
      {toggles.map(({ name, enable }) => (
        <span key={name} style={boxStyle(theme)}>
          {name} <Icon name={enable === false ? 'circle' : 'check-circle'} />
        </span>
      ))}
      <span style={{ flex: 1 }} />
      {(dashboard.links ?? []).map((link) => (
        <span key={link.title} style={button}>
          {vars.interpolate(link.title)}
        </span>
      ))}
      <span style={button}>
        <Icon name="clock-nine" />
        {rangeText(env)}
      </span>
    </div>
  );
}

function TopBar({ title, theme }) {
  const line = { display: 'flex', alignItems: 'center', height: TOP_BAR - 8, marginBottom: 8 };
  return (
    <div style={line}>
      <span style={{ color: theme.colors.text.secondary, marginRight: 8 }}>Dashboards ›</span>
      <span style={{ fontWeight: 500 }}>{title}</span>
    </div>
  );
}

export function Page({ env, panels, dashboard, height }) {
  const { theme, config } = env;
  return (
    <div style={{ padding: PADDING, width: config.width, boxSizing: 'border-box' }} data-page>
      {!config.kiosk && <TopBar title={dashboard.title} theme={theme} />}
      <Controls {...{ env, dashboard }} />
      <div style={{ position: 'relative', height }}>
        {panels.map((prepared, index) => (
          <Panel key={index} {...{ prepared, env, index }} />
        ))}
      </div>
    </div>
  );
}
