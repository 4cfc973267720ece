package page

// faults is a script that returns what is wrong with a page as it is seen. The contrast is that of
// WCAG 2, which asks for 4.5.
const faults = `(width, phone) => {
	const found = [];
	const seen = element => element.checkVisibility({ visibilityProperty: true }) && !element.closest(".hidden, .skip, [hidden]");
	const said = element => (element.innerText || element.value || element.id || element.tagName).trim().slice(0, 40);
	if (document.documentElement.scrollWidth > width) {
		const wide = [...document.querySelectorAll("body *")].filter(element => seen(element) && element.getBoundingClientRect().right > width + 1);
		found.push("it is " + document.documentElement.scrollWidth + " wide: " + wide.slice(0, 3).map(said).join(", "));
	}
	const colour = text => (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
	const light = ([r, g, b]) => {
		const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
		return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
	};
	const behind = element => {
		for (let e = element; e; e = e.parentElement) {
			const c = colour(getComputedStyle(e).backgroundColor);
			if (c[3] !== 0) return c;
		}
		return [255, 255, 255];
	};
	for (const element of document.querySelectorAll("body *")) {
		if (!seen(element) || ![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
		const svg = element.namespaceURI.endsWith("svg");
		const style = getComputedStyle(element);
		const a = light(colour(svg ? style.fill : style.color)), b = light(behind(element));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) found.push("contrast " + ratio.toFixed(2) + ": " + said(element));
	}
	for (const element of document.querySelectorAll("button, a.button, input, select, summary")) {
		if (!seen(element) || element.type === "hidden") continue;
		if (phone && element.getBoundingClientRect().height < 43.9) found.push("too small for a thumb: " + said(element));
		if (/INPUT|SELECT/.test(element.tagName) && element.labels.length === 0) found.push("without a label: " + said(element));
	}
	if (!document.title || document.querySelectorAll("h1").length !== 1) found.push("it has no title, or not one heading");
	return found;
}`
