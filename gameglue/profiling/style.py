"""The style sheet of the HTML report, and the script for its tooltips."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--page:#f7f8fa;--card:#fff;--ink:#16191f;--muted:#5b6472;--line:#dfe3ea;
--grid:#e9ecf1;--accent:#2a78d6;--budget:#c2410c;--band:#8a94a61f;
--c0:#2a78d6;--c1:#1baf7a;--c2:#eda100;--c3:#4a3aa7;--c4:#e34948;--c5:#e87ba4;--c6:#008300;--c7:#a3abb8}
@media (prefers-color-scheme:dark){:root{--page:#12151c;--card:#1b202b;--ink:#e8ecf3;--muted:#97a2b6;
--line:#343d4f;--grid:#2a3140;--accent:#5aa6f5;--budget:#ffb454;--band:#97a2b624;
--c0:#3987e5;--c1:#199e70;--c2:#c98500;--c3:#9085e9;--c4:#e66767;--c5:#d55181;--c6:#3a9a3a;--c7:#6b7588}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,Segoe UI,sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 4px}
h2{font-size:16px;margin:0 0 10px}
section,.tile{background:var(--card);border:1px solid var(--line);border-radius:10px}
section{padding:18px 20px;margin-top:16px}
p{margin:6px 0}
.muted{color:var(--muted);font-size:13.5px}
.bad{color:var(--budget)}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin-top:16px}
.tile{padding:12px 16px;flex:1 1 auto;min-width:120px}
.number{font-size:25px;font-weight:600;font-variant-numeric:tabular-nums}
.number small{font-size:13px;font-weight:400;color:var(--muted)}
svg.plot{display:block;width:100%;height:auto}
.grid{stroke:var(--grid)}
.tick{fill:var(--muted);font-size:12px}
.line{fill:none;stroke:var(--accent);stroke-width:1.4;stroke-linejoin:round}
.area{fill:var(--accent);opacity:.14}
.budget{stroke:var(--budget);stroke-dasharray:5 4}
.budget-label{fill:var(--budget);font-size:12px}
.band{fill:var(--band)}
.hist{fill-opacity:.32;stroke-width:1.5}
.side-a{fill:var(--c0);stroke:var(--c0);background:var(--c0)}
.side-b{fill:var(--c2);stroke:var(--c2);background:var(--c2)}
.stack{stroke:var(--card);stroke-width:.6}
.c0{fill:var(--c0);background:var(--c0)}.c1{fill:var(--c1);background:var(--c1)}
.c2{fill:var(--c2);background:var(--c2)}.c3{fill:var(--c3);background:var(--c3)}
.c4{fill:var(--c4);background:var(--c4)}.c5{fill:var(--c5);background:var(--c5)}
.c6{fill:var(--c6);background:var(--c6)}.c7{fill:var(--c7);background:var(--c7)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;align-items:center}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.band-key{background:var(--band);border:1px solid var(--line)}
.wide{overflow-x:auto;margin-top:12px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th{color:var(--muted);font-weight:500;text-align:left}
th,td{padding:4px 10px 4px 0;border-bottom:1px solid var(--grid);white-space:nowrap}
.n{text-align:right}
code{font:12.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.meter,.bar{display:inline-flex;width:140px;height:9px;background:var(--grid);border-radius:5px;overflow:hidden}
.meter span{background:var(--accent);border-radius:5px}
.bar{width:220px;gap:2px}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--page);padding:4px 9px;
border-radius:6px;font-size:12.5px;display:none;max-width:420px}
"""

SCRIPT = """
const tip=document.createElement('div');tip.id='tip';document.body.append(tip);
for(const svg of document.querySelectorAll('svg[data-tips]')){
const tips=svg.dataset.tips.split('|'),left=+svg.dataset.left,right=+svg.dataset.right;
svg.addEventListener('pointermove',e=>{const box=svg.getBoundingClientRect();
const x=(e.clientX-box.left)/box.width*svg.viewBox.baseVal.width;
const i=Math.round((x-left)/(right-left)*(tips.length-1));
if(i<0||i>=tips.length){tip.style.display='none';return}
tip.textContent=tips[i];tip.style.display='block';
tip.style.left=Math.min(e.clientX+14,innerWidth-tip.offsetWidth-8)+'px';tip.style.top=(e.clientY+14)+'px'});
svg.addEventListener('pointerleave',()=>tip.style.display='none')}
"""
