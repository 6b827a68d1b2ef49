// The page of results. The index and lunr are scripts of this page, so nothing is fetched and no worker is needed.
(function () {
  var query = new URLSearchParams(location.search).get("q") || "";
  var box = document.getElementById("query"), list = document.getElementById("results"), sections = {}, titles = {};
  var index = lunr(function () {
    this.ref("location");
    this.field("title", { boost: 10 });
    this.field("text");
    searchIndex.docs.forEach(function (each) {
      if (each.location.includes("#")) {
        sections[each.location] = each;
        this.add(each);
      } else {
        titles[each.location] = each.title; // of a whole page, which its sections show in parts
      }
    }, this);
  });

  function element(name, text) {
    var made = document.createElement(name);
    made.textContent = text;
    return made;
  }

  // The text around the query, or around its first word.
  function excerpt(text, words) {
    var at = [words.join(" "), words[0]].map((part) => text.toLowerCase().indexOf(part)).find((place) => place >= 0);
    var start = Math.max(0, (at || 0) - 80);
    return (start > 0 ? "… " : "") + text.slice(start, start + 240) + (text.length > start + 240 ? " …" : "");
  }

  function show() {
    var words = box.value.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];
    // A word also finds those that begin with it; pages with all words come first.
    var found = words.length === 0 ? [] : index.query(function (asked) {
      words.forEach(function (word) {
        asked.term(lunr.tokenizer(word), { boost: 10 });
        asked.term(word, { wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false });
      });
    });
    list.replaceChildren();
    found.slice(0, 50).forEach(function (each) {
      var section = sections[each.ref], page = titles[each.ref.split("#")[0]];
      var link = element("a", page === section.title ? page : page + ": " + section.title);
      var item = document.createElement("article");
      link.href = section.location;
      item.appendChild(document.createElement("h3")).appendChild(link);
      item.appendChild(element("p", excerpt(section.text, words)));
      list.appendChild(item);
    });
    if (found.length === 0) {
      list.appendChild(element("p", words.length === 0 ? "Write one or more words." : "Nothing was found."));
    }
  }

  box.value = query;
  box.addEventListener("input", show);
  show();
})();
