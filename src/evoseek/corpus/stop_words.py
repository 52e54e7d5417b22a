"""Words that say nothing by themselves, of the languages that most corpora are written in.

English, German, French, Spanish, Italian, Portuguese, Dutch and Russian, in lower case. They only tell what is worth
mining; search has no stop words.
"""

_WORDS = """
a about above after again against all almost along already also although always am among an and another any are as at
away back be became because become been before being below between both but by called can cannot could did do does doing
done down during each either enough even ever every few first for from further gave get give given go goes had has have
having he hence her here hers herself him himself his how however i if in instead into is it its itself just last later
least less let like made make makes many may me might more most much must my near neither never new next no nobody none
nor not nothing now of off often on once one only onto or other others our ours out over own per perhaps quite rather
said same second see several shall she should since so some soon still such take taken than that the their theirs them
themselves then there therefore these they this those though three through thus to together too toward towards two under
unless until up upon us use used uses using usually very via was we well went were what when where whether which while
who whole whom whose why will with within without would yet you your yours

aber alle als also am an auch auf aus bei beim bis da dann das dass dem den denn der des dessen die dies diese diesem
diesen dieser dieses doch dort du durch ein eine einem einen einer eines er es etwa für gegen haben hat hatte hier ich
ihm ihn ihr ihre im in ins ist ja jede jeder kann kein keine man mehr mein mit nach nicht noch nun nur ob oder ohne sehr
sein seine seinem seinen seiner seit sich sie sind so sowie über um und uns unter vom von vor wann war waren was weil
wenn werden wie wieder wir wird wo wurde wurden zu zum zur zwischen

ainsi alors au aucun aussi autre aux avait avant avec car ce cela celle celui ces cet cette chez comme contre dans de
depuis des dont du elle elles en encore entre est et était été être fait fut il ils je la le les leur leurs lors lui
mais même ne ni nos notre nous on ont ou où par pas pendant peu peut plus pour puis qu que qui sa sans se selon ses si
son sont sous sur ta te tous tout toute toutes très tu un une vers vos votre vous

además al algo ante antes aquel así aunque bajo cada como con cual cuando cuya cuyo de del desde donde dos durante el
ella ellas ellos en entre era eran es esa ese eso esta está están este esto estos fue fueron ha había han hasta hay la
las le les lo los más mi mientras muy ni no nos o otra otro para pero poco por porque pues que quien se según ser si sí
sido sin sobre son su sus también tan tanto tiene todo todos tras tu un una uno unos y ya

ad agli ai alla alle allo anche ancora avere che chi ci come con cui da dagli dai dal dalla degli dei del dell della
delle dello di dopo dove e ed era erano essere fra fu gli ha hanno i il in io la le lei lo loro lui ma molto ne negli
nei nel nella nelle noi non o ogni per perché più poi prima quale quando quella quello questa questi questo se senza si
sia sono su sua sue sugli sui sul sulla suo suoi tra tutti tutto un una uno

ao aos apenas até com como da das de dela dele depois do dos e é ela elas ele eles em entre era eram essa esse esta este
foi foram há isso isto já lhe mais mas mesmo muito na nas não nem no nos o onde os ou para pela pelas pelo pelos por
quando que quem são se sem ser seu seus sob sobre sua suas também tem teve um uma

aan al alleen als bij daar dan dat de deze die dit door een en er ge geen had heeft het hier hij hoe hun ik in is ja kan
maar meer met na naar niet nog nu of om omdat onder ook op over te tegen toen tot uit van veel voor waar waren was wat
werd werden wie wij wordt worden zal ze zich zij zijn zo zonder

а без был была были было быть в вам вас весь во вот все всего всех вы где да для до его ее её если есть ещё же за и из
или им их к как ко когда который которая которые кто ли между меня мне может мы на над не него нее нет ни них но о об он
она они оно от по под после при с со так также такой там то того тоже только том ты у уже хотя чего чем что чтобы эта
эти это этого этот я
"""
STOP_WORDS = frozenset(_WORDS.split())
